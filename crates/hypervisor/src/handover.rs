//! Descriptors on their way into a process that is yet to be: they wait in a socket, which becomes its standard input.
//!
//! Inherited directly they would take a fork of ours: all of our memory shared page by page, and copied again as both go on,
//! for every machine that starts. A process that inherits nothing but its standard streams is spawned without one.
//!
//! What waits in the socket is held open. A lock handed over is held from the first moment of the process that has the
//! socket, whatever becomes of us; and if it never comes to be, the lock goes with the socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::net::UnixStream,
};

use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags,
    },
};

/// The kernel takes 253 in one message.
const IN_ONE_MESSAGE: usize = 200;

/// Puts descriptors into a socket, which is all that whoever is to have them needs.
pub fn put<'fd>(descriptors: impl IntoIterator<Item = BorrowedFd<'fd>>) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.into_iter().collect();
    for some in descriptors.chunks(IN_ONE_MESSAGE) {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(IN_ONE_MESSAGE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(some)) {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        // Descriptors travel with at least one byte; what it says does not matter.
        rustix::net::sendmsg(&ours, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(theirs.into())
}

/// Takes out what [`put`] put in, in the same order. None of them outlives an exec as it is.
pub fn take(socket: impl AsFd) -> io::Result<Vec<OwnedFd>> {
    let mut taken = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(IN_ONE_MESSAGE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                taken.extend(some);
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other("not all descriptors could be taken: too many are open"));
        }
        if got.bytes == 0 {
            return Ok(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read};

    use super::*;

    #[test]
    fn more_than_fit_into_one_message_arrive_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<File> = (0..IN_ONE_MESSAGE + 3)
            .map(|number| {
                let path = dir.path().join(number.to_string());
                std::fs::write(&path, number.to_string()).unwrap();
                File::open(path).unwrap()
            })
            .collect();
        let socket = put(files.iter().map(AsFd::as_fd)).unwrap();
        drop(files);
        let taken = take(socket).unwrap();
        assert_eq!(taken.len(), IN_ONE_MESSAGE + 3);
        for (number, file) in taken.into_iter().enumerate() {
            let mut said = String::new();
            File::from(file).read_to_string(&mut said).unwrap();
            assert_eq!(said, number.to_string());
        }
    }

    #[test]
    fn a_lock_is_held_for_as_long_as_it_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = File::create(&path).unwrap();
        lock.lock().unwrap();
        let socket = put([lock.as_fd()]).unwrap();
        drop(lock);
        let other = File::open(&path).unwrap();
        assert!(other.try_lock().is_err(), "it is held while it waits");
        drop(socket);
        other.try_lock().expect("it is let go with the socket");
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(take(put([]).unwrap()).unwrap().len(), 0);
    }
}
