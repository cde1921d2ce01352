//! Little-endian numbers, lists and text in and out of bytes. Reading is total: it ends in a value or an error, and
//! allocates no more than in proportion to what is there.

/// Why bytes are no program.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

pub fn malformed<T>(why: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(why.into()))
}

#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u8(&mut self, x: u8) {
        self.0.push(x);
    }

    pub fn u32(&mut self, x: u32) {
        self.0.extend_from_slice(&x.to_le_bytes());
    }

    pub fn u64(&mut self, x: u64) {
        self.0.extend_from_slice(&x.to_le_bytes());
    }

    /// A count or an index: these come from lists in memory whose sizes models bound to 32 bits.
    pub fn index(&mut self, x: usize) {
        self.u32(u32::try_from(x).unwrap_or(u32::MAX));
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.index(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.index(list.len());
        list.iter().for_each(|item| each(self, item));
    }
}

pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        match self.0.split_at_checked(len) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => malformed(format!("it ends {} bytes early", len - self.0.len())),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().or_else(|_| malformed("a number is cut short"))
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            x => malformed(format!("{x} is not a truth value")),
        }
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub fn f32(&mut self) -> Result<f32, Malformed> {
        Ok(f32::from_le_bytes(self.array()?))
    }

    pub fn size(&mut self) -> Result<usize, Malformed> {
        usize::try_from(u64::from_le_bytes(self.array()?)).or_else(|_| malformed("a size is too large"))
    }

    /// An index below `count`.
    pub fn index(&mut self, count: usize) -> Result<usize, Malformed> {
        let index = self.u32()? as usize;
        if index < count {
            return Ok(index);
        }
        malformed(format!("index {index} of {count}"))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    pub fn text(&mut self) -> Result<String, Malformed> {
        match std::str::from_utf8(self.bytes()?) {
            Ok(text) => Ok(text.into()),
            Err(why) => malformed(why.to_string()),
        }
    }

    /// A list of items of at least one byte each.
    pub fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32()? as usize;
        if count > self.0.len() {
            return malformed(format!("{count} items in {} bytes", self.0.len()));
        }
        // Grows as items turn up: a count alone allocates nothing.
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(each(self)?);
        }
        Ok(list)
    }
}
