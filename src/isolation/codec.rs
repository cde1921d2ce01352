//! From values to bytes and back: numbers in little-endian order, lists with their length before them, alternatives by a
//! number. Both processes are of one build, so that nothing here has versions.
//!
//! Bytes that are not of a value give `None`, and never a panic or more memory than there are bytes.

use crate::tensor::Dims;
use std::sync::Arc;

/// The bytes that are left to be read.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
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

/// The value of these bytes, which must be of nothing else.
pub fn from_bytes<T: Wire>(bytes: &[u8]) -> Option<T> {
    let mut reader = Reader(bytes);
    T::take(&mut reader).filter(|_| reader.0.is_empty())
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
        from.bytes(len).map(|bytes| Blob(bytes.to_vec()))
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
    // Every element has a byte at least; the list grows as they come.
    let len = usize::take(from).filter(|&len| len <= from.0.len())?;
    (0..len).map(|_| T::take(from)).collect()
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

    proptest! {
        #[test]
        fn any_bytes_are_a_value_or_none(bytes in prop::collection::vec(0u8..4, 0..200)) {
            if let Some(value) = from_bytes::<All>(&bytes) {
                prop_assert_eq!(to_bytes(&value), bytes);
            }
        }
    }
}
