//! The options of custom operators: a map from names to numbers, as FlexBuffers write it. A damaged one lacks what is asked for.

/// A map's bytes.
pub struct Map<'a> {
    bytes: &'a [u8],
    /// Where its values begin.
    values: usize,
    /// Bytes of each value.
    width: usize,
    count: usize,
}

const MAP: u8 = 9;
const INT: u8 = 1;
const UINT: u8 = 2;
const FLOAT: u8 = 3;
const BOOL: u8 = 26;

impl<'a> Map<'a> {
    /// The map that is the whole of `bytes`. The root stands at the end: its value, its type, and its width.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let &[.., packed, root_width] = bytes else { return None };
        let root = bytes.len().checked_sub(2 + usize::from(root_width))?;
        if packed >> 2 != MAP {
            return None;
        }
        let values = root.checked_sub(unsigned(bytes, root, usize::from(root_width))?)?;
        let width = 1 << (packed & 3);
        let count = unsigned(bytes, values.checked_sub(width)?, width)?;
        (count <= bytes.len()).then_some(Map { bytes, values, width, count })
    }

    /// The number of this name.
    pub fn number(&self, name: &str) -> Option<f64> {
        (0..self.count).find(|&i| self.key(i) == Some(name.as_bytes())).and_then(|i| self.value(i))
    }

    /// Before the values stand where their names' list is, and how wide its entries are.
    fn key(&self, i: usize) -> Option<&'a [u8]> {
        let place = self.values.checked_sub(3 * self.width)?;
        let keys = place.checked_sub(unsigned(self.bytes, place, self.width)?)?;
        let width = unsigned(self.bytes, place + self.width, self.width)?;
        let entry = keys.checked_add(i.checked_mul(width)?)?;
        let name = self.bytes.get(entry.checked_sub(unsigned(self.bytes, entry, width)?)?..)?;
        name.split(|&byte| byte == 0).next()
    }

    /// Behind the values stand their types.
    fn value(&self, i: usize) -> Option<f64> {
        let packed = *self.bytes.get(self.values + self.count * self.width + i)?;
        let place = self.values + i * self.width;
        let field = self.bytes.get(place..place + self.width)?;
        match (packed >> 2, self.width) {
            (UINT | BOOL, _) => unsigned(self.bytes, place, self.width).map(|value| value as f64),
            (INT, 1) => Some(f64::from(field[0] as i8)),
            (INT, 2) => field.try_into().ok().map(|field| f64::from(i16::from_le_bytes(field))),
            (INT, 4) => field.try_into().ok().map(|field| f64::from(i32::from_le_bytes(field))),
            (INT, 8) => field.try_into().ok().map(|field| i64::from_le_bytes(field) as f64),
            (FLOAT, 4) => field.try_into().ok().map(|field| f64::from(f32::from_le_bytes(field))),
            (FLOAT, 8) => field.try_into().ok().map(f64::from_le_bytes),
            _ => None,
        }
    }
}

/// An unsigned number of so many bytes.
fn unsigned(bytes: &[u8], place: usize, width: usize) -> Option<usize> {
    let field = bytes.get(place..place.checked_add(width)?)?;
    match width {
        1 | 2 | 4 | 8 => {
            let value = field.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
            usize::try_from(value).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A map of these, in the order of their names, with 4 bytes to each value.
    pub fn map(entries: &[(&str, f32)]) -> Vec<u8> {
        let (mut bytes, mut names) = (Vec::new(), Vec::new());
        for (name, _) in entries {
            names.push(bytes.len());
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(0);
        }
        let put = |bytes: &mut Vec<u8>, value: usize| bytes.extend((value as u32).to_le_bytes());
        put(&mut bytes, entries.len());
        let keys = bytes.len();
        for name in names {
            let offset = bytes.len() - name;
            put(&mut bytes, offset);
        }
        let offset = bytes.len() - keys;
        put(&mut bytes, offset);
        put(&mut bytes, 4);
        put(&mut bytes, entries.len());
        let values = bytes.len();
        for (_, value) in entries {
            match value.fract() == 0.0 {
                true => put(&mut bytes, *value as usize),
                false => bytes.extend(value.to_le_bytes()),
            }
        }
        bytes.extend(
            entries.iter().map(|(_, value)| (if value.fract() == 0.0 { INT } else { FLOAT }) << 2 | 2),
        );
        let offset = bytes.len() - values;
        bytes.extend([offset as u8, MAP << 2 | 2, 1]);
        bytes
    }

    #[test]
    fn numbers_are_found_by_name() {
        let bytes = map(&[("a", 3.0), ("bc", 0.25), ("d", 700.0)]);
        let map = Map::read(&bytes).unwrap();
        assert_eq!(
            ["a", "bc", "d", "b", ""].map(|name| map.number(name)),
            [Some(3.0), Some(0.25), Some(700.0), None, None]
        );
    }

    #[test]
    fn damaged_ones_never_panic() {
        let bytes = map(&[("a", 3.0), ("bc", 0.25), ("d", 700.0)]);
        for len in 0..bytes.len() {
            if let Some(map) = Map::read(&bytes[..len]) {
                map.number("bc");
            }
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 4, 8, 127, 255] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                if let Some(map) = Map::read(&damaged) {
                    map.number("bc");
                }
            }
        }
    }
}
