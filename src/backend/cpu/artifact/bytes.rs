//! Little-endian numbers, lists and text in and out of bytes. Reading is total: it ends in a value or an error, and allocates
//! no more than in proportion to what is there. Both give their turn up by what is read or written.

use crate::ops::pace::Pace;
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::{Interrupt, OpError};

/// Why bytes did not become a program.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    #[error("{0}")]
    Malformed(String),
    /// The work was to stop, or there was no memory for it.
    #[error(transparent)]
    Stopped(#[from] OpError),
}

pub fn malformed<T>(why: impl Into<String>) -> Result<T, Unread> {
    Err(Unread::Malformed(why.into()))
}

/// What it costs to read or write a number, in the steps that [`Pace`] counts.
const NUMBER: usize = 4;

/// Writes until there is an error, and nothing from then on: [`Writer::end`] tells of it.
pub struct Writer<'a> {
    bytes: Result<Scratch<u8>, OpError>,
    pace: Pace<'a>,
}

impl<'a> Writer<'a> {
    pub fn new(interrupt: &'a dyn Interrupt) -> Self {
        Writer { bytes: reserved(0), pace: Pace::of(interrupt) }
    }

    /// What was written.
    pub fn end(self) -> Result<Vec<u8>, OpError> {
        Ok(std::mem::take(&mut *self.bytes?))
    }

    fn put(&mut self, bytes: &[u8]) {
        let Ok(written) = &mut self.bytes else { return };
        let spent = self.pace.spend(bytes.len().saturating_add(NUMBER));
        let append = |()| written.append(self.pace.interrupt(), bytes.iter().copied());
        if let Err(why) = spent.and_then(append) {
            self.bytes = Err(why);
        }
    }

    pub fn u8(&mut self, x: u8) {
        self.put(&[x]);
    }

    pub fn u32(&mut self, x: u32) {
        self.put(&x.to_le_bytes());
    }

    pub fn u64(&mut self, x: u64) {
        self.put(&x.to_le_bytes());
    }

    /// A count or an index: these come from lists in memory whose sizes models bound to 32 bits.
    pub fn index(&mut self, x: usize) {
        self.u32(u32::try_from(x).unwrap_or(u32::MAX));
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.index(bytes.len());
        self.put(bytes);
    }

    pub fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.index(list.len());
        for item in list {
            if self.bytes.is_err() {
                return;
            }
            each(self, item);
        }
    }
}

pub struct Reader<'a> {
    /// Those that were not read yet.
    pub rest: &'a [u8],
    pub pace: Pace<'a>,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], interrupt: &'a dyn Interrupt) -> Self {
        Reader { rest: bytes, pace: Pace::of(interrupt) }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Unread> {
        self.pace.spend(len.saturating_add(NUMBER))?;
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => malformed(format!("it ends {} bytes early", len - self.rest.len())),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unread> {
        self.take(N)?.try_into().or_else(|_| malformed("a number is cut short"))
    }

    pub fn u8(&mut self) -> Result<u8, Unread> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub fn bool(&mut self) -> Result<bool, Unread> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            x => malformed(format!("{x} is not a truth value")),
        }
    }

    pub fn u32(&mut self) -> Result<u32, Unread> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn i32(&mut self) -> Result<i32, Unread> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub fn f32(&mut self) -> Result<f32, Unread> {
        Ok(f32::from_le_bytes(self.array()?))
    }

    pub fn size(&mut self) -> Result<usize, Unread> {
        usize::try_from(u64::from_le_bytes(self.array()?)).or_else(|_| malformed("a size is too large"))
    }

    /// An index below `count`.
    pub fn index(&mut self, count: usize) -> Result<usize, Unread> {
        let index = self.u32()? as usize;
        if index < count {
            return Ok(index);
        }
        malformed(format!("index {index} of {count}"))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Unread> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    pub fn text(&mut self) -> Result<String, Unread> {
        match std::str::from_utf8(self.bytes()?) {
            Ok(text) => Ok(text.into()),
            Err(why) => malformed(why.to_string()),
        }
    }

    /// A list of items of at least one byte each.
    pub fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, Unread>,
    ) -> Result<Vec<T>, Unread> {
        let count = self.u32()? as usize;
        if count > self.rest.len() {
            return malformed(format!("{count} items in {} bytes", self.rest.len()));
        }
        // Grows as items turn up: a count alone allocates nothing.
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(each(self)?);
        }
        Ok(list)
    }
}
