//! Uploads that break off, and the rest of them that comes later.
//!
//! Whoever sends an image over a bad line should not begin anew each time. So an upload that ends before its end is not
//! thrown away: the thread that writes it waits, with everything it has digested and unpacked so far, and how many bytes
//! it has is what [`super::ImageState::Interrupted`] says. Whoever goes on there goes on with the same thread; whoever
//! begins at 0 begins anew.
//!
//! It waits for a while, and so do only a few, since each holds a thread and a file. Nothing of it survives the process.

use std::{
    error::Error,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use futures::Stream;
use tokio::runtime::Handle;

use super::{
    Announced, Image, ImageError, ImageState, Images, Known, Progress,
    arrival::{self, Arrival, Begun, Intake, Wanted, in_full},
};
use crate::{ImageId, storage::on_a_thread};

/// More than these are not kept waiting.
const MOST_WAITING: usize = 16;

/// Half an upload.
pub struct Waiting {
    intake: Intake,
    progress: Arc<Progress>,
    why: String,
    /// Which of several interruptions of one image this is.
    mark: Arc<()>,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("received", &self.intake.received).field("why", &self.why).finish()
    }
}

impl Waiting {
    pub fn state(&self) -> ImageState {
        let total = self.progress.total.get().copied();
        ImageState::Interrupted { bytes: self.intake.received, total, why: self.why.clone() }
    }
}

/// An upload while its bytes come. Dropped before its end, it waits for the rest.
pub struct Uploading {
    arrival: Arrival,
    /// None once nothing more is to come.
    intake: Option<Intake>,
}

impl Uploading {
    pub async fn begin(
        images: Arc<Images>,
        id: ImageId,
        announced: Announced,
    ) -> Result<Begun<Uploading>, ImageError> {
        if announced.offset > 0 {
            return Ok(Begun::Now(Uploading::go_on(images, id, &announced)?));
        }
        let mut arrival = match arrival::begin(images, id).await? {
            Begun::Already(image) => return Ok(Begun::Already(image)),
            Begun::Now(arrival) => arrival,
        };
        let wanted = Wanted { size: announced.size, most_bytes: None, checksum: announced.checksum };
        match arrival.open(wanted).await {
            Ok(intake) => Ok(Begun::Now(Uploading { arrival, intake: Some(intake) })),
            Err(why) => Err(arrival.failed(why)),
        }
    }

    /// Takes up what was sent before.
    fn go_on(images: Arc<Images>, id: ImageId, announced: &Announced) -> Result<Uploading, ImageError> {
        let wrong = |expected| ImageError::WrongOffset { expected, offset: announced.offset };
        let Waiting { mut intake, progress, .. } = {
            let mut known = images.known.lock();
            match known.remove(&id) {
                Some(Known::Interrupted(waiting)) if waiting.intake.received == announced.offset => {
                    known.insert(id.clone(), Known::Arriving(waiting.progress.clone()));
                    *waiting
                }
                None => return Err(wrong(0)),
                Some(other) => {
                    let why = match &other {
                        Known::Arriving(_) => ImageError::AlreadyArriving { image: id.clone() },
                        Known::Interrupted(waiting) => wrong(waiting.intake.received),
                        Known::Failed(_) => wrong(0),
                    };
                    known.insert(id, other);
                    return Err(why);
                }
            }
        };
        // Who did not know how large it is may know it by now. Another size than was said before is found out at the end.
        if let Some(size) = announced.size.filter(|_| intake.wanted.size.is_none()) {
            intake.wanted.size = Some(size);
            let _ = progress.total.set(size);
        }
        Ok(Uploading { arrival: Arrival::of(images, id, progress), intake: Some(intake) })
    }

    pub async fn take<S, E>(mut self, stream: S) -> Result<Image, ImageError>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let poured = match &mut self.intake {
            Some(intake) => self.arrival.pour(intake, stream).await,
            None => Ok(()),
        };
        if let Err(why @ ImageError::Interrupted { .. }) = poured {
            self.wait_for_the_rest(&in_full(&why));
            return Err(why);
        }
        let ended = match (poured, self.intake.take()) {
            (Ok(()), Some(intake)) => self.arrival.complete(intake).await,
            (Ok(()), None) => Err(ImageError::NoSuchImage { image: self.arrival.id.clone() }),
            (Err(why), _) => Err(why),
        };
        ended.map_err(|why| self.arrival.failed(why))
    }

    fn wait_for_the_rest(&mut self, why: &str) {
        let Some(intake) = self.intake.take() else { return };
        let arrival = &mut self.arrival;
        if arrival.progress.cancelled.is_cancelled() {
            return;
        }
        arrival.failure = Some(why.to_owned());
        // Outside of a runtime nobody would end the waiting; and what is nothing is not worth any.
        let Ok(runtime) = Handle::try_current() else { return };
        if intake.received == 0 {
            return;
        }
        let mark = Arc::new(());
        {
            let mut known = arrival.images.known.lock();
            let waiting = known.values().filter(|one| matches!(one, Known::Interrupted(_))).count();
            if waiting >= MOST_WAITING {
                return;
            }
            arrival.is_given_away = true;
            let progress = arrival.progress.clone();
            let waiting = Waiting { intake, progress, why: why.to_owned(), mark: mark.clone() };
            known.insert(arrival.id.clone(), Known::Interrupted(Box::new(waiting)));
        }
        let images = Arc::downgrade(&arrival.images);
        runtime.spawn(give_up_after(arrival.images.upload_patience, images, arrival.id.clone(), mark));
    }
}

impl Drop for Uploading {
    fn drop(&mut self) {
        self.wait_for_the_rest("whoever sent it is gone");
    }
}

async fn give_up_after(patience: Duration, images: Weak<Images>, id: ImageId, mark: Arc<()>) {
    tokio::time::sleep(patience).await;
    let Some(images) = images.upgrade() else { return };
    let given_up = {
        let mut known = images.known.lock();
        match known.get(&id) {
            Some(Known::Interrupted(waiting)) if Arc::ptr_eq(&waiting.mark, &mark) => {
                let why = format!("{}; the rest did not come", waiting.why);
                known.insert(id.clone(), Known::Failed(why))
            }
            _ => None,
        }
    };
    if given_up.is_none() {
        return;
    }
    on_a_thread(move || {
        drop(given_up);
        let _turn = images.turns.take(&id);
        // A new attempt that began meanwhile has made its own place.
        if !matches!(images.known.lock().get(&id), Some(Known::Arriving(_))) {
            images.throw_away(&id);
        }
    })
    .await;
}
