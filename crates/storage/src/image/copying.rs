//! An image of an image: a second name for the same bytes, made at once however large they are.
//!
//! Neither knows of the other afterwards; the bytes go with the last name.

use std::{io, sync::Arc};

use super::{
    DISK, Image, ImageError, Images, MANIFEST_VERSION, Manifest,
    arrival::{self, Begun},
    read_manifest,
};
use crate::{ImageId, Step, storage::on_a_thread};

impl Images {
    pub async fn copy(self: Arc<Self>, id: ImageId, from: ImageId) -> Result<Image, ImageError> {
        let mut arrival = match arrival::begin(self.clone(), id.clone()).await? {
            Begun::Already(image) => return Ok(image),
            Begun::Now(arrival) => arrival,
        };
        let progress = arrival.progress.clone();
        let ended = on_a_thread(move || {
            let no_such_image = || ImageError::NoSuchImage { image: from.clone() };
            let image = self.find(&from)?.ok_or_else(no_such_image)?;
            let original = self.directory.directory(from.as_str())?.ok_or_else(no_such_image)?;
            let manifest = read_manifest(&original)?.ok_or_else(no_such_image)?;
            let directory = arrival::prepare(&self, &id, &progress, None)?;
            self.after.took(Step::ArrivalMade);
            match directory.link(DISK, &original, DISK) {
                // Deleted since it was looked at.
                Err(why) if why.kind() == io::ErrorKind::NotFound => return Err(no_such_image()),
                linked => linked?,
            }
            self.after.took(Step::ImageCloned);
            let manifest = Manifest { version: MANIFEST_VERSION, is_disc: Some(image.is_disc), ..manifest };
            arrival::publish(&self, &id, &progress, &directory, manifest)
        })
        .await;
        ended.map_err(|why| arrival.failed(why))
    }
}
