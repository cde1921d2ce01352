//! From values to bytes and back: numbers in little-endian order, lists with their length before them, alternatives by a
//! number. Both processes are of one build, so that nothing here has versions.
//!
//! Bytes that are not of a value give `None`, and never a panic. A value may take many times as much memory as its bytes, a
//! list of nothing the most: who does not believe the other process says how much it may take.

use crate::tensor::Dims;
use std::sync::Arc;

/// The bytes that are left to be read, and how many bytes of memory what is read may still take.
pub struct Reader<'a> {
    bytes: &'a [u8],
    room: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], room: usize) -> Self {
        Reader { bytes, room }
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(bytes)
    }

    /// An empty list with memory for `len` elements, if there is room for that.
    fn list<T>(&mut self, len: usize) -> Option<Vec<T>> {
        self.room = self.room.checked_sub(len.checked_mul(size_of::<T>())?)?;
        let mut list = Vec::new();
        list.try_reserve_exact(len).ok()?;
        Some(list)
    }
}

/// What goes from one process to the other.
pub trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// What [`put`](Self::put) wrote.
    fn take(from: &mut Reader) -> Option<Self>;
}

/// The bytes of a value.
pub fn to_bytes(value: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// The value of these bytes, which must be of nothing else. Who wrote them is believed.
pub fn from_bytes<T: Wire>(bytes: &[u8]) -> Option<T> {
    from_bytes_within(bytes, usize::MAX)
}

/// The value that these bytes begin with, and the bytes after it. Who wrote them is believed.
pub fn from_start<T: Wire>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let mut reader = Reader::new(bytes, usize::MAX);
    let value = T::take(&mut reader)?;
    Some((value, reader.bytes))
}

/// The same as [`from_bytes`], if the value takes no more than `room` bytes of memory besides what is in it itself.
pub fn from_bytes_within<T: Wire>(bytes: &[u8], room: usize) -> Option<T> {
    let mut reader = Reader::new(bytes, room);
    T::take(&mut reader).filter(|_| reader.bytes.is_empty())
}

/// Many bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl Wire for Blob {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.len().put(out);
        out.extend(&self.0);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        let len = usize::take(from)?;
        let bytes = from.bytes(len)?;
        let mut blob = from.list(len)?;
        blob.extend_from_slice(bytes);
        Some(Blob(blob))
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn take(from: &mut Reader) -> Option<Self> {
                let bytes = from.bytes(size_of::<$number>())?;
                bytes.try_into().ok().map(<$number>::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i32, f32);

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        u64::take(from)?.try_into().ok()
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend(self.as_bytes());
    }

    fn take(from: &mut Reader) -> Option<Self> {
        String::from_utf8(Blob::take(from)?.0).ok()
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_list(self, out);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        take_list(from)
    }
}

fn put_list<T: Wire>(list: &[T], out: &mut Vec<u8>) {
    list.len().put(out);
    list.iter().for_each(|each| each.put(out));
}

fn take_list<T: Wire, L: FromIterator<T>>(from: &mut Reader) -> Option<L> {
    // Every element has a byte at least.
    let len = usize::take(from).filter(|&len| len <= from.bytes.len())?;
    let mut list = from.list(len)?;
    for _ in 0..len {
        list.push(T::take(from)?);
    }
    Some(list.into_iter().collect())
}

impl<T: Wire> Wire for Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        T::take(from).map(Arc::new)
    }
}

impl<T: Wire> Wire for Arc<[T]> {
    fn put(&self, out: &mut Vec<u8>) {
        put_list(self, out);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        take_list(from)
    }
}

impl Wire for Dims {
    fn put(&self, out: &mut Vec<u8>) {
        put_list(self, out);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        take_list(from)
    }
}

impl<K: Wire + Ord, V: Wire> Wire for std::collections::BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn take(from: &mut Reader) -> Option<Self> {
        Some(Vec::<(K, V)>::take(from)?.into_iter().collect())
    }
}

impl<T: Wire> Wire for std::ops::Range<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.start.put(out);
        self.end.put(out);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        Some(T::take(from)?..T::take(from)?)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut Reader) -> Option<Self> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Some(None),
        }
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn take(from: &mut Reader) -> Option<Self> {
        match bool::take(from)? {
            true => T::take(from).map(Ok),
            false => E::take(from).map(Err),
        }
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl Wire for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn take(_: &mut Reader) -> Option<Self> {
        Some(())
    }
}

impl Wire for std::time::Duration {
    fn put(&self, out: &mut Vec<u8>) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).put(out);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        u64::take(from).map(Self::from_nanos)
    }
}

/// A structure, by its fields.
macro_rules! wire_struct {
    ($ty:ty { $($field:tt),* }) => {
        impl Wire for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(from: &mut Reader) -> Option<Self> {
                Some(Self { $($field: Wire::take(from)?),* })
            }
        }
    };
}

/// Alternatives: each by its number, its name and its fields, those of a tuple being numbers, with a name for each.
macro_rules! wire_enum {
    ($ty:ident { $($number:literal $name:ident { $($field:tt : $value:ident),* }),* }) => {
        impl Wire for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($ty::$name { $($field: $value),* } => {
                        $number.put(out);
                        $($value.put(out);)*
                    })*
                }
            }

            fn take(from: &mut Reader) -> Option<Self> {
                Some(match u8::take(from)? {
                    $($number => $ty::$name { $($field: Wire::take(from)?),* },)*
                    _ => return None,
                })
            }
        }
    };
}

pub(super) use {wire_enum, wire_struct};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq)]
    enum Any {
        Nothing,
        Both(String, Vec<u32>),
        Named { value: Option<f32> },
    }

    wire_enum!(Any { 0u8 Nothing {}, 1u8 Both { 0: a, 1: b }, 2u8 Named { value: value } });

    type All = (Vec<Any>, Result<(u8, u64), Blob>);

    #[test]
    fn values_come_back_as_they_were() {
        let any = [Any::Nothing, Any::Both("ä".into(), vec![1, 2]), Any::Named { value: Some(1.5) }];
        for rest in [Ok((7, u64::MAX)), Err(Blob(vec![1, 2, 3]))] {
            let all: All = (any.iter().map(|each| from_bytes(&to_bytes(each)).unwrap()).collect(), rest);
            let bytes = to_bytes(&all);
            assert_eq!(from_bytes::<All>(&bytes), Some(all));
            // Neither more bytes are a value, nor fewer.
            assert_eq!(from_bytes::<All>(&[&bytes[..], &[0]].concat()), None);
            (0..bytes.len()).for_each(|len| assert_eq!(from_bytes::<All>(&bytes[..len]), None, "{len}"));
        }
    }

    #[test]
    fn a_value_takes_no_more_memory_than_it_may() {
        type Verdicts = Vec<Result<(), String>>;
        const ELEMENTS: usize = 1000;
        // A byte each, and many in memory.
        let bytes = to_bytes(&Verdicts::from(vec![Ok(()); ELEMENTS]));
        assert_eq!(bytes.len(), 8 + ELEMENTS);
        let needed = ELEMENTS * size_of::<Result<(), String>>();
        assert!(from_bytes_within::<Verdicts>(&bytes, needed).is_some());
        assert!(from_bytes_within::<Verdicts>(&bytes, needed - 1).is_none());
        // What is within elements counts as well.
        let bytes = to_bytes(&Verdicts::from(vec![Err("0123456789".into()); 2]));
        let needed = 2 * size_of::<Result<(), String>>() + 2 * 10;
        assert!(from_bytes_within::<Verdicts>(&bytes, needed).is_some());
        assert!(from_bytes_within::<Verdicts>(&bytes, needed - 1).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value_or_none(bytes in prop::collection::vec(0u8..4, 0..200)) {
            if let Some(value) = from_bytes::<All>(&bytes) {
                prop_assert_eq!(to_bytes(&value), bytes);
            }
        }
    }
}
