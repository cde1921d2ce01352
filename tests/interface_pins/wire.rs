//! Says what a value must look like in a parcel, word by word.

use binder::{Deserialize, Parcel, Serialize};

const FD_OBJECT: i32 = i32::from_be_bytes([b'f', b'd', b'*', 0x85]);

/// Little-endian words; `None` is a word that differs from run to run.
#[derive(Clone, Default)]
pub struct Wire(Vec<Option<i32>>);

impl Wire {
    pub fn i(mut self, value: i32) -> Self {
        self.0.push(Some(value));
        self
    }

    pub fn l(self, value: i64) -> Self {
        self.i(value as i32).i((value >> 32) as i32)
    }

    pub fn f(self, value: f32) -> Self {
        self.i(value.to_bits() as i32)
    }

    /// A count, then the bytes in whole words.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.i(bytes.len() as i32).raw(bytes)
    }

    /// UTF-16 with a terminator that the count leaves out.
    pub fn s(self, text: &str) -> Self {
        let units: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        self.i(text.encode_utf16().count() as i32).raw(&units)
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        for chunk in bytes.chunks(4) {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            self = self.i(i32::from_le_bytes(word));
        }
        self
    }

    pub fn ints(self, values: &[i32]) -> Self {
        values.iter().fold(self.i(values.len() as i32), |wire, value| wire.i(*value))
    }

    /// A ParcelFileDescriptor: there is one, without a channel to its sender.
    pub fn fd(self) -> Self {
        self.i(1).i(0).i(FD_OBJECT).any(5)
    }

    fn any(mut self, words: usize) -> Self {
        self.0.resize(self.0.len() + words, None);
        self
    }

    /// A structured parcelable: there is one, its size in bytes with the size itself, its fields.
    pub fn parcelable(self, fields: Wire) -> Self {
        let size = 4 * (fields.0.len() + 1) as i32;
        self.i(1).i(size).then(fields)
    }

    /// A union: there is one, the index of its member, the member.
    pub fn union(self, tag: i32, member: Wire) -> Self {
        self.i(1).i(tag).then(member)
    }

    pub fn array<const N: usize>(self, elements: [Wire; N]) -> Self {
        elements.into_iter().fold(self.i(N as i32), Wire::then)
    }

    pub fn then(mut self, other: Wire) -> Self {
        self.0.extend(other.0);
        self
    }
}

fn words(parcel: &mut Parcel) -> Vec<i32> {
    parcel.set_data_position(0);
    let count = parcel.data_size() / 4;
    (0..count).map(|i| parcel.read().unwrap_or_else(|e| panic!("word {i}: {e:?}"))).collect()
}

#[track_caller]
fn compare(words: &[i32], expected: &Wire, what: &str) {
    assert_eq!(words.len(), expected.0.len(), "{what}: number of words in {words:x?}");
    for (i, (word, expected)) in words.iter().zip(&expected.0).enumerate() {
        assert!(expected.is_none_or(|e| e == *word), "{what}: word {i} is {word:#x}, not {:#x?}", *expected);
    }
}

/// The value is written as expected, and what is read from that is written the same again.
#[track_caller]
pub fn pin<T: Serialize + Deserialize>(value: &T, expected: Wire) {
    let mut parcel = Parcel::new();
    parcel.write(value).expect("write");
    compare(&words(&mut parcel), &expected, "written");
    parcel.set_data_position(0);
    let back: T = parcel.read().expect("read");
    let mut again = Parcel::new();
    again.write(&back).expect("write again");
    compare(&words(&mut again), &expected, "written, read and written");
}
