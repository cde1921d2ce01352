//! What a client sends over a socket, as far as it must be known to bound it: where each message begins and ends, how
//! long it is, and whether it is a one-way call. (The layout is that of libbinder's RpcWireFormat.h.)
//!
//! It reads along and changes nothing: whether a message makes sense is for the binder crate to say.

/// Bytes of a connection's header; the session's id may follow.
const GREETING: usize = 16;
/// Bytes that a client sends once its connection is accepted, unless the connection is for our calls.
const INIT: usize = 8;
/// Bytes of a message's header: command, size of what follows, and nothing.
const HEADER: usize = 16;
/// Bytes of a call's own header that end with its flags: address, code, flags.
const FLAGS_END: usize = 16;
const TRANSACT: u32 = 0;
const FLAG_ONE_WAY: u32 = 1;
/// A connection's option: it is for our calls, by which a client's callbacks are reached.
const OPTION_INCOMING: u8 = 1;

/// What was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message has begun, which has so many bytes.
    Began(usize),
    /// It is a call that wants no answer.
    OneWay,
    /// It is a call, by a connection that is for the client's calls.
    Call,
    Ended,
}

/// Follows one connection.
#[derive(Debug, Default)]
pub struct Frames {
    state: State,
    /// Whether the connection is for our calls.
    incoming: bool,
    /// Beginning of a header that has come in part.
    head: [u8; HEADER + FLAGS_END],
    have: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Greeting,
    /// What follows a greeting and says nothing that matters here.
    Skipped(usize),
    Header,
    /// The header of a call whose message has so many bytes after the first.
    CallHeader(usize),
    Body(usize),
}

impl Frames {
    /// Reads `bytes`, which follow what was read before, and tells what they say. An error of `tell` ends it.
    pub fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        mut tell: impl FnMut(Event) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Greeting => self.collect(bytes, GREETING),
                State::Header => self.collect(bytes, HEADER),
                State::CallHeader(_) => self.collect(bytes, HEADER + FLAGS_END),
                State::Skipped(left) | State::Body(left) => self.skip(bytes, left),
            };
            self.advance(&mut tell)?;
        }
        Ok(())
    }

    /// Takes what is missing of a head of `size` bytes; gives what is left.
    fn collect<'b>(&mut self, bytes: &'b [u8], size: usize) -> &'b [u8] {
        let (taken, rest) = bytes.split_at(bytes.len().min(size - self.have));
        self.head[self.have..self.have + taken.len()].copy_from_slice(taken);
        self.have += taken.len();
        rest
    }

    fn skip<'b>(&mut self, bytes: &'b [u8], left: usize) -> &'b [u8] {
        let count = bytes.len().min(left);
        self.state = match self.state {
            State::Skipped(_) => State::Skipped(left - count),
            _ => State::Body(left - count),
        };
        &bytes[count..]
    }

    /// Goes on where a part is complete, and through parts of no bytes.
    fn advance<E>(&mut self, tell: &mut impl FnMut(Event) -> Result<(), E>) -> Result<(), E> {
        loop {
            match self.state {
                State::Greeting if self.have == GREETING => {
                    let id = usize::from(u16::from_le_bytes([self.head[14], self.head[15]]));
                    self.incoming = self.head[4] & OPTION_INCOMING != 0;
                    let init = if self.incoming { 0 } else { INIT };
                    (self.state, self.have) = (State::Skipped(id + init), 0);
                }
                State::Skipped(0) => self.state = State::Header,
                State::Header if self.have == HEADER => {
                    let size = self.word(4) as usize;
                    tell(Event::Began(size))?;
                    self.state = match self.word(0) == TRANSACT && size >= FLAGS_END {
                        true => State::CallHeader(size - FLAGS_END),
                        false => State::Body(size),
                    };
                }
                State::CallHeader(left) if self.have == HEADER + FLAGS_END => {
                    if self.word(HEADER + 12) & FLAG_ONE_WAY != 0 {
                        tell(Event::OneWay)?;
                    }
                    if !self.incoming {
                        tell(Event::Call)?;
                    }
                    self.state = State::Body(left);
                }
                State::Body(0) => {
                    (self.state, self.have) = (State::Header, 0);
                    tell(Event::Ended)?;
                }
                _ => return Ok(()),
            }
        }
    }

    fn word(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.head[at..at + 4]);
        u32::from_le_bytes(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn greeting(id: usize, incoming: bool) -> Vec<u8> {
        let mut bytes = vec![0; GREETING + id + if incoming { 0 } else { INIT }];
        (bytes[4], bytes[14]) = (u8::from(incoming), id as u8);
        bytes
    }

    fn message(command: u32, size: usize, flags: u32) -> Vec<u8> {
        let mut bytes = vec![0xa5; HEADER + size];
        bytes[..4].copy_from_slice(&command.to_le_bytes());
        bytes[4..8].copy_from_slice(&(size as u32).to_le_bytes());
        if let Some(word) = bytes.get_mut(HEADER + 12..HEADER + 16) {
            word.copy_from_slice(&flags.to_le_bytes());
        }
        bytes
    }

    proptest! {
        #[test]
        fn messages_are_told_however_they_are_cut(
            id in prop_oneof![Just(0usize), Just(32usize)],
            incoming: bool,
            messages in prop::collection::vec((0u32..4, 0usize..100, 0u32..4), 0..20),
            cuts in prop::collection::vec(1usize..40, 1..20),
        ) {
            let (mut bytes, mut expected) = (greeting(id, incoming), Vec::new());
            for (command, size, flags) in messages {
                bytes.extend(message(command, size, flags));
                expected.push(Event::Began(size));
                if command == TRANSACT && size >= FLAGS_END && flags & FLAG_ONE_WAY != 0 {
                    expected.push(Event::OneWay);
                }
                if command == TRANSACT && size >= FLAGS_END && !incoming {
                    expected.push(Event::Call);
                }
                expected.push(Event::Ended);
            }
            let (mut frames, mut told, mut left) = (Frames::default(), Vec::new(), &bytes[..]);
            for cut in cuts.into_iter().cycle() {
                let (now, later) = left.split_at(cut.min(left.len()));
                frames.feed(now, |event| {
                    told.push(event);
                    Ok::<_, ()>(())
                }).unwrap();
                left = later;
                if left.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(told, expected);
        }
    }

    #[test]
    fn a_refusal_is_passed_on() {
        let bytes = [greeting(0, false), message(TRANSACT, 40, FLAG_ONE_WAY)].concat();
        let refuse = |event| if event == Event::OneWay { Err("one way") } else { Ok(()) };
        assert_eq!(Frames::default().feed(&bytes, refuse), Err("one way"));
    }
}
