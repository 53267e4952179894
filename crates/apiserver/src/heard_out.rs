//! Requests that are answered before all of them was read are heard out.
//!
//! Who is refused without a look at the body, for having no credentials say, may still be sending it. Over HTTP/2 a stream whose
//! sender nobody listens to is reset right behind the answer, and some clients then lose the answer. So what is left of a small
//! body is taken and thrown away; whoever sends much after being refused is cut off as before. Who asked first whether to send
//! the body at all, and was refused, may leave it out: then there is nothing to be heard out, and what comes next is another request.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::{Request, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::{runtime::Handle, time::timeout};

const MOST_BYTES: usize = 64 << 10;
const LONGEST: Duration = Duration::from_secs(2);

/// A body that is read to its end, by whoever it was given to or after that.
pub struct HeardOut<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    /// None once there is nothing more to come.
    body: Option<B>,
    /// Whether what nobody reads comes all the same.
    comes_anyway: bool,
}

impl<B> HeardOut<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    pub fn of(request: Request<B>) -> Request<Self> {
        let comes_anyway = !request.headers().contains_key(header::EXPECT);
        request.map(|body| HeardOut { body: Some(body), comes_anyway })
    }
}

impl<B> Body for HeardOut<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> Drop for HeardOut<B>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        if !self.comes_anyway || body.size_hint().lower() > MOST_BYTES as u64 {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(timeout(LONGEST, hear_out(body)));
        }
    }
}

async fn hear_out(mut body: impl Body<Data = Bytes> + Unpin) {
    let mut heard = 0;
    while heard <= MOST_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => heard += frame.data_ref().map_or(0, Buf::remaining),
            Some(Err(_)) | None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use futures::{StreamExt, stream};
    use http_body_util::StreamBody;

    use super::*;

    const PIECE: usize = 16 << 10;

    /// A body of so many pieces that counts what is taken of it, its end included, of a request with this header.
    fn body_of(
        name: &str,
        pieces: usize,
    ) -> (HeardOut<impl Body<Data = Bytes, Error = Infallible> + Unpin + Send>, Arc<AtomicUsize>) {
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = taken.clone();
        let frames = (0..=pieces).map_while(move |n| {
            counted.fetch_add(1, Ordering::SeqCst);
            (n < pieces).then(|| Ok(Frame::data(Bytes::from(vec![0; PIECE]))))
        });
        let request =
            Request::post("/").header(name, "100-continue").body(StreamBody::new(stream::iter(frames)));
        (HeardOut::of(request.unwrap()).into_body(), taken)
    }

    fn body(
        pieces: usize,
    ) -> (HeardOut<impl Body<Data = Bytes, Error = Infallible> + Unpin + Send>, Arc<AtomicUsize>) {
        body_of("x-other", pieces)
    }

    async fn settled(taken: &AtomicUsize) -> usize {
        loop {
            let before = taken.load(Ordering::SeqCst);
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            if taken.load(Ordering::SeqCst) == before {
                return before;
            }
        }
    }

    #[tokio::test]
    async fn who_is_answered_early_may_say_the_rest() {
        let (mut body, taken) = body(3);
        body.frame().await;
        drop(body);
        assert_eq!(settled(&taken).await, 4, "to its end");
    }

    #[tokio::test]
    async fn but_not_for_ever() {
        let (body, taken) = body(1000);
        drop(body);
        assert_eq!(settled(&taken).await, MOST_BYTES / PIECE + 1);
    }

    #[tokio::test]
    async fn nor_who_may_keep_it_to_themselves() {
        let (body, taken) = body_of("expect", 3);
        drop(body);
        assert_eq!(settled(&taken).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nor_who_takes_for_ever() {
        let held = Arc::new(());
        let frames = stream::repeat(held.clone()).then(|held| async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            drop(held);
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"-")))
        });
        drop(HeardOut::of(Request::new(StreamBody::new(Box::pin(frames)))));
        tokio::time::sleep(LONGEST + Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&held), 1, "it is let go");
    }

    #[tokio::test]
    async fn what_was_read_is_over() {
        let (body, taken) = body(2);
        assert_eq!(body.collect().await.map(|all| all.to_bytes().len()), Ok(2 * PIECE));
        assert_eq!(settled(&taken).await, 3);
    }
}
