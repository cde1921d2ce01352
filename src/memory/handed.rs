//! Bytes and descriptors that go from one process of ours to another: messages over a socket, and files without a name.
//!
//! The other process may have gone mad. What comes from it is whole or an error, and reading it waits for nobody: a file
//! is read only if it is plain memory that cannot shrink.

use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, MsgFlags};
use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// Bytes of a message that go through the socket itself; longer ones go in a file.
const INLINE: usize = 16 << 10;
/// Descriptors that one message may have, its own file included; and those that the kernel lets one have, whoever sends it.
const MOST_FILES: usize = 64;
const MOST_OF_ANY: usize = 253;
/// The longest message.
const MOST_BYTES: u64 = 1 << 30;

/// A file without a name that holds `len` zeroes, for [`seal`] to end its changes.
pub fn unnamed_file(len: usize) -> Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(c"nnhal", flags)?);
    file.set_len(len as u64)?;
    Ok(file)
}

/// Seals a file of [`unnamed_file`]: its length is fixed for every process, and so are its bytes if it is `constant`.
pub fn seal(file: &File, constant: bool) -> Result<()> {
    let mut seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    seals.set(SealFlag::F_SEAL_WRITE, constant);
    fcntl(file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

/// Sends a message with some descriptors over a socket that keeps messages apart. It waits for nobody: an error of the
/// kind `WouldBlock` where the other side has too many unread.
pub fn send(socket: BorrowedFd, message: &[u8], files: &[BorrowedFd]) -> Result<()> {
    send_with_body(socket, &[], message, files)
}

/// The same of a message that begins with `head`, which must be short: this goes through the socket in any case, for the other
/// side to know what the rest is before it has read that.
pub fn send_with_body(socket: BorrowedFd, head: &[u8], body: &[u8], files: &[BorrowedFd]) -> Result<()> {
    if head.len() > INLINE {
        return Err(Error::new(ErrorKind::InvalidInput, "a message whose head is too long"));
    }
    let mut fds: Vec<RawFd> = files.iter().map(|fd| fd.as_raw_fd()).collect();
    let file;
    let (form, inline) = match body.len() > INLINE - head.len() {
        false => ([0], body),
        true => {
            let long = unnamed_file(0)?;
            long.write_all_at(body, 0)?;
            seal(&long, true)?;
            file = long;
            fds.insert(0, file.as_raw_fd());
            ([1], &[][..])
        }
    };
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
    let parts = [IoSlice::new(&form), IoSlice::new(head), IoSlice::new(inline)];
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    sendmsg::<()>(socket.as_raw_fd(), &parts, rights, flags, None)?;
    Ok(())
}

/// Receives what [`send`] sent, and waits for it unless `now`. `None` once the other side is gone.
pub fn receive(socket: BorrowedFd, now: bool) -> Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    receive_within(socket, now, MOST_BYTES)
}

/// The same, if the message has no more than `most` bytes: a file of zeroes costs who sends it nothing.
pub fn receive_within(socket: BorrowedFd, now: bool, most: u64) -> Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    match receive_unread(socket, now)? {
        Some((message, files)) => Ok(Some((message.bytes(most)?, files))),
        None => Ok(None),
    }
}

/// A message that has come in: its bytes, or its head and the file that has the rest, unread.
pub enum Message {
    Here(Vec<u8>),
    InFile(Vec<u8>, File),
}

impl Message {
    /// Its first bytes; `None` if it has fewer, or cannot be read.
    pub fn first<const N: usize>(&self) -> Option<[u8; N]> {
        match self {
            Message::Here(bytes) => bytes.first_chunk().copied(),
            Message::InFile(head, _) if !head.is_empty() => head.first_chunk().copied(),
            Message::InFile(_, file) => {
                check_sealed(file).ok()?;
                let mut bytes = [0; N];
                file.read_exact_at(&mut bytes, 0).ok()?;
                Some(bytes)
            }
        }
    }

    /// All of its bytes, if they are no more than `most`.
    pub fn bytes(self, most: u64) -> Result<Vec<u8>> {
        match self {
            Message::Here(bytes) => Ok(bytes),
            Message::InFile(head, file) => contents(head, &file, most),
        }
    }
}

/// The same for who leaves it to another thread to read the message, which may be long.
pub fn receive_unread(socket: BorrowedFd, now: bool) -> Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut bytes = [0; INLINE + 1];
    // There is room for whatever comes: what does not fit would be open here, and known to nobody.
    let mut space = vec![0u8; ANCILLARY_HEAD + MOST_OF_ANY * size_of::<RawFd>()];
    let (mut flags, raw) = (MsgFlags::MSG_CMSG_CLOEXEC, socket.as_raw_fd());
    flags.set(MsgFlags::MSG_DONTWAIT, now);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = match recvmsg::<()>(raw, &mut parts, Some(&mut space), flags) {
        // The other side ended without having read all that it was sent.
        Err(Errno::ECONNRESET) => return Ok(None),
        got => got?,
    };
    // Some may be missing where this process has too many open.
    let (len, cut) = (got.bytes, got.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC));
    // SAFETY: the kernel has just made these descriptors for this message, and nobody else knows them.
    let mut files: Vec<_> = descriptors_in(&space).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect();
    let cut = cut || files.len() > MOST_FILES;
    let nonsense = |why: &str| Err(Error::new(ErrorKind::InvalidData, why));
    match bytes[..len].split_first() {
        None => Ok(None),
        Some(_) if cut => nonsense("a message that is too long"),
        Some((0, message)) => Ok(Some((Message::Here(message.to_vec()), files))),
        Some((1, head)) if !files.is_empty() => {
            let body = File::from(files.remove(0));
            Ok(Some((Message::InFile(head.to_vec(), body), files)))
        }
        Some(_) => nonsense("a message in a form that there is not"),
    }
}

/// Where descriptors begin in what comes beside a message: a length in bytes, this included, a level and a type.
const ANCILLARY_HEAD: usize = size_of::<libc::cmsghdr>().next_multiple_of(size_of::<usize>());

/// The descriptors in what came beside a message: all that the kernel has made, even if others are missing.
fn descriptors_in(space: &[u8]) -> impl Iterator<Item = RawFd> + '_ {
    let number = |at: usize| {
        let bytes = space.get(at..at + size_of::<i32>()).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, i32::from_ne_bytes)
    };
    let len = space.first_chunk().map_or(0, |bytes| usize::from_ne_bytes(*bytes));
    let kind = [number(size_of::<usize>()), number(size_of::<usize>() + size_of::<i32>())];
    let end = if kind == [libc::SOL_SOCKET, libc::SCM_RIGHTS] { len } else { 0 };
    let fds = space.get(ANCILLARY_HEAD..end).unwrap_or_default().chunks_exact(size_of::<RawFd>());
    fds.filter_map(|bytes| bytes.try_into().ok()).map(RawFd::from_ne_bytes)
}

fn check_sealed(file: &File) -> Result<()> {
    let seals = fcntl(file, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_truncate);
    match seals.is_ok_and(|seals| seals.contains(SealFlag::F_SEAL_SHRINK)) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::InvalidData, "a message in a file that can shrink")),
    }
}

/// `head` and the bytes of a file that another process has sealed.
fn contents(head: Vec<u8>, file: &File, most: u64) -> Result<Vec<u8>> {
    check_sealed(file)?;
    let len = file.metadata()?.len();
    if len > most {
        return Err(Error::new(ErrorKind::InvalidData, "a message that is too long"));
    }
    let (start, mut bytes) = (head.len(), head);
    bytes.try_reserve_exact(len as usize).map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
    bytes.resize(start + len as usize, 0);
    file.read_exact_at(&mut bytes[start..], 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{socketpair, AddressFamily, SockFlag, SockType};
    use std::io::Write;
    use std::os::fd::AsFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    #[test]
    fn messages_arrive_whole_with_their_descriptors() {
        let (ours, theirs) = pair();
        let file = unnamed_file(3).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        for len in [1, INLINE, INLINE + 1, 1 << 20] {
            let message: Vec<u8> = (0..len).map(|i| i as u8).collect();
            send(ours.as_fd(), &message, &[file.as_fd()]).unwrap();
            let (bytes, files) = receive(theirs.as_fd(), false).unwrap().unwrap();
            assert!(bytes == message && files.len() == 1, "{len}");
            let mut read = [0; 3];
            File::from(files.into_iter().next().unwrap()).read_exact_at(&mut read, 0).unwrap();
            assert_eq!(&read, b"abc");
        }
        let would_block = receive(theirs.as_fd(), true).unwrap_err().kind();
        assert_eq!(would_block, ErrorKind::WouldBlock);
        let head: Vec<u8> = (100..200).collect();
        for len in [0, INLINE - head.len(), INLINE - head.len() + 1, 1 << 20] {
            let (body, files) = (vec![7; len], [file.as_fd()]);
            let send = || send_with_body(ours.as_fd(), &head, &body, &files).unwrap();
            send();
            let (unread, files) = receive_unread(theirs.as_fd(), false).unwrap().unwrap();
            assert_eq!((unread.first(), files.len()), (head.first_chunk::<8>().copied(), 1), "{len}");
            let is_long = head.len() + len > INLINE;
            assert!(matches!(unread, Message::InFile(ref told, _) if told == &head) == is_long);
            send();
            let (bytes, _) = receive(theirs.as_fd(), false).unwrap().unwrap();
            assert!(bytes == [&head[..], &body].concat());
        }
        assert!(send_with_body(ours.as_fd(), &[0; INLINE + 1], &[], &[]).is_err());
        drop(ours);
        assert!(receive(theirs.as_fd(), false).unwrap().is_none());
    }

    #[test]
    fn who_does_not_read_keeps_nobody_waiting() {
        let (ours, _theirs) = pair();
        let sent = (0..100_000).find_map(|_| send(ours.as_fd(), &[0; 100], &[]).err());
        assert_eq!(sent.unwrap().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn nonsense_is_told_from_messages() {
        let (ours, theirs) = pair();
        let raw = |bytes: &[u8], fds: &[RawFd]| {
            let rights = [ControlMessage::ScmRights(fds)];
            let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
            sendmsg::<()>(ours.as_raw_fd(), &[IoSlice::new(bytes)], rights, MsgFlags::empty(), None).unwrap();
            receive(theirs.as_fd(), false).unwrap_err().kind()
        };
        let mut shrinks = unnamed_file(0).unwrap();
        shrinks.write_all(&[7; 100]).unwrap();
        let null = File::open("/dev/null").unwrap();
        for fds in [&[][..], &[shrinks.as_raw_fd()], &[null.as_raw_fd()]] {
            assert_eq!(raw(&[1], fds), ErrorKind::InvalidData);
        }
        assert_eq!(raw(&[2, 3], &[]), ErrorKind::InvalidData);
        assert_eq!(raw(&[0; INLINE + 2], &[]), ErrorKind::InvalidData);
    }

    /// Another process may send more than it should: none of them stays open.
    #[test]
    fn too_many_descriptors_are_nonsense_and_are_let_go_of() {
        let (ours, theirs) = pair();
        let (reads, writes) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        for count in [MOST_FILES + 1, MOST_OF_ANY] {
            let rights = [ControlMessage::ScmRights(&vec![writes.as_raw_fd(); count])];
            sendmsg::<()>(ours.as_raw_fd(), &[IoSlice::new(&[0, 1])], &rights, MsgFlags::empty(), None)
                .unwrap();
            assert_eq!(receive(theirs.as_fd(), false).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        drop(writes);
        let mut ended = [nix::poll::PollFd::new(reads.as_fd(), nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut ended, 20_000u16), Ok(1), "somebody has it open");
        assert!(ended[0].revents().unwrap().contains(nix::poll::PollFlags::POLLHUP));
    }

    #[test]
    fn a_message_has_no_more_bytes_than_it_may() {
        let (ours, theirs) = pair();
        let most = 1 << 20;
        for (len, taken) in [(most, true), (most + 1, false)] {
            send(ours.as_fd(), &vec![0; len], &[]).unwrap();
            let received = receive_within(theirs.as_fd(), false, most as u64);
            let kind = received.map(|_| ()).map_err(|error| error.kind());
            assert_eq!(kind, if taken { Ok(()) } else { Err(ErrorKind::InvalidData) });
        }
    }

    #[test]
    fn a_sealed_file_stays_as_it_is() {
        let file = unnamed_file(10).unwrap();
        seal(&file, true).unwrap();
        assert!(file.write_all_at(&[1], 0).is_err() && file.set_len(9).is_err());
        let buffer = unnamed_file(10).unwrap();
        seal(&buffer, false).unwrap();
        assert!(buffer.write_all_at(&[1], 0).is_ok() && buffer.set_len(9).is_err());
    }
}
