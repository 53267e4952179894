//! A file, or a part of one, sent as it is read.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures::Stream;
use http_body_util::StreamBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt, SeekFrom, Take},
};

/// What is read and sent at once.
const PIECE: usize = 512 << 10;

type Pieces = Pin<Box<dyn Stream<Item = io::Result<Frame<Bytes>>> + Send>>;

/// A file that ends before it has sent what it promised is an error, never an end.
pub struct FileBody {
    pieces: StreamBody<Pieces>,
    length: u64,
    left: u64,
}

impl FileBody {
    /// `length` bytes from `first` on.
    pub async fn of(file: std::fs::File, first: u64, length: u64) -> io::Result<FileBody> {
        let mut file = File::from_std(file);
        file.set_max_buf_size(PIECE);
        file.seek(SeekFrom::Start(first)).await?;
        let pieces = futures::stream::try_unfold(file.take(length), async |mut file: Take<File>| {
            if file.limit() == 0 {
                return Ok(None);
            }
            let mut piece = BytesMut::with_capacity(PIECE);
            match file.read_buf(&mut piece).await? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(Some((Frame::data(piece.freeze()), file))),
            }
        });
        Ok(FileBody { pieces: StreamBody::new(Box::pin(pieces)), length, left: length })
    }

    pub fn length(&self) -> u64 {
        self.length
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.pieces).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let sent = frame.data_ref().map_or(0, |data| data.len() as u64);
            self.left = self.left.saturating_sub(sent);
        }
        polled
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The part of a file that a `Range` header asks for: where it begins and how long it is. None for all of it, also where
/// several parts are asked for or the header makes no sense, as the standard has it; an error where none of it is there.
pub fn part(range: Option<&str>, length: u64) -> Result<Option<(u64, u64)>, Beyond> {
    let Some(range) = range.and_then(|range| range.trim().strip_prefix("bytes=")) else { return Ok(None) };
    let Some((first, last)) = range.split_once('-').filter(|_| !range.contains(',')) else { return Ok(None) };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (first.trim(), last.trim()) {
        ("", last) => match number(last) {
            None => Ok(None),
            Some(0) => Err(Beyond),
            Some(last) => {
                let sent = last.min(length);
                if sent == 0 { Err(Beyond) } else { Ok(Some((length - sent, sent))) }
            }
        },
        (first, last) => {
            let Some(first) = number(first) else { return Ok(None) };
            let end = match (last, number(last)) {
                ("", _) => length,
                (_, Some(last)) if last >= first => length.min(last.saturating_add(1)),
                _ => return Ok(None),
            };
            if first >= length { Err(Beyond) } else { Ok(Some((first, end - first))) }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Beyond;

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_is_what_was_asked_for_as_far_as_it_is_there() {
        for (range, expected) in [
            (None, Ok(None)),
            (Some("bytes=0-"), Ok(Some((0, 100)))),
            (Some("bytes=10-19"), Ok(Some((10, 10)))),
            (Some("bytes=90-200"), Ok(Some((90, 10)))),
            (Some("bytes=-7"), Ok(Some((93, 7)))),
            (Some("bytes=-700"), Ok(Some((0, 100)))),
            (Some("bytes=100-"), Err(Beyond)),
            (Some("bytes=-0"), Err(Beyond)),
            (Some("bytes=9-3"), Ok(None)),
            (Some("bytes=0-1,5-6"), Ok(None)),
            (Some("items=0-1"), Ok(None)),
            (Some("bytes=a-b"), Ok(None)),
        ] {
            assert_eq!(part(range, 100), expected, "{range:?}");
        }
    }

    #[tokio::test]
    async fn a_file_is_sent_from_the_middle_and_one_that_shrank_is_an_error() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, (0..=255).cycle().take(2_000_000).collect::<Vec<u8>>()).unwrap();
        let open = || std::fs::File::open(&path).unwrap();
        let sent =
            FileBody::of(open(), 1_000_001, 900_000).await.unwrap().collect().await.unwrap().to_bytes();
        assert_eq!((sent.len(), sent[0]), (900_000, (1_000_001 % 256) as u8));
        let cut = FileBody::of(open(), 1_000_000, 2_000_000).await.unwrap();
        cut.collect().await.unwrap_err();
    }

    proptest! {
        #[test]
        fn no_range_leads_out_of_the_file(range in "(bytes=)?[0-9,-]{0,40}", length in 0..1000u64) {
            if let Ok(Some((first, sent))) = part(Some(&range), length) {
                prop_assert!(sent > 0 && first + sent <= length);
            }
        }
    }
}
