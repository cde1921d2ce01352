//! What goes with an order, as the backend's process gets it. Where it is long it lies in a file still: to read that is for who
//! does what was ordered, as the orders of all clients wait for the thread that reads them.

use super::codec::from_start;
use super::instance::count;
use super::message::Order;
use crate::backend::BackendError;
use crate::memory::{Counted, MemoryError, Message};
use crate::ops::Interrupt;
use crate::scheduler::STRETCH;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};

pub enum Body {
    Here(Vec<u8>),
    InFile(File),
}

impl Body {
    /// The order that a message is, and what goes with it; `None` for what makes no sense.
    pub fn of(message: Message) -> Option<(Order, Body)> {
        let (mut head, file) = match message {
            Message::Here(bytes) => (bytes, None),
            Message::InFile(head, file) => (head, Some(file)),
        };
        let (order, rest) = from_start(&head).map(|(order, rest)| (order, rest.len()))?;
        let body = match file {
            None => Body::Here(head.split_off(head.len() - rest)),
            Some(file) => Some(Body::InFile(file)).filter(|_| rest == 0)?,
        };
        Some((order, body))
    }

    /// Its bytes. Those of a file are copied by the yield points of `turn`, and are on the account of the client whose work the
    /// thread does for as long as the second of what this gives is there.
    pub fn read(self, turn: &dyn Interrupt) -> Result<(Vec<u8>, Option<Counted>), BackendError> {
        let file = match self {
            Body::Here(bytes) => return Ok((bytes, None)),
            Body::InFile(file) => file,
        };
        let unread = |why| BackendError::memory("an order")(MemoryError::Map(why));
        let len = usize::try_from(file.metadata().map_err(unread)?.len()).unwrap_or(usize::MAX);
        let (counted, mut bytes) = (count(len)?, Vec::new());
        bytes.try_reserve_exact(len).map_err(|_| BackendError::OutOfMemory(len))?;
        while bytes.len() < len {
            turn.yield_point()?;
            if (&file).take(STRETCH as u64).read_to_end(&mut bytes).map_err(unread)? == 0 {
                return Err(unread(Error::from(ErrorKind::UnexpectedEof)));
            }
        }
        Ok((bytes, Some(counted)))
    }
}

/// `bytes` in parts of so many; `None` if they are not as many in all.
pub fn parts(mut bytes: Vec<u8>, lens: &[usize]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::with_capacity(lens.len());
    for len in lens.iter().skip(1).rev() {
        parts.push(bytes.split_off(bytes.len().checked_sub(*len)?));
    }
    let is_whole = bytes.len() == lens.first().copied().unwrap_or(0);
    parts.extend(lens.first().map(|_| bytes));
    parts.reverse();
    is_whole.then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_models_come_in_their_parts() {
        let bytes: Vec<u8> = (0..9).collect();
        let expected = [vec![0, 1, 2, 3], vec![], vec![4, 5, 6, 7, 8]];
        assert_eq!(parts(bytes.clone(), &[4, 0, 5]).as_deref(), Some(&expected[..]));
        assert_eq!(parts(bytes.clone(), &[9]), Some(vec![bytes.clone()]));
        assert_eq!(parts(Vec::new(), &[]), Some(Vec::new()));
        for lens in [&[][..], &[8], &[10], &[4, 6], &[10, 0]] {
            assert_eq!(parts(bytes.clone(), lens), None, "{lens:?}");
        }
    }
}
