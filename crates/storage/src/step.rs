//! The single steps of everything a [`crate::Storage`] does, by name.
//!
//! A process can die after any of them, and the next one must then find a disk without halves
//! on it. So that this can be tested step by step rather than at random, the
//! configuration takes a function that is called after each one.

use std::{fmt, str::FromStr, sync::Arc};

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident = $name:literal,)*) => {
        /// One thing done that is visible on the disk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Step {
            $($(#[$doc])* $step,)*
        }

        impl Step {
            pub const ALL: &[Step] = &[$(Step::$step),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Step::$step => $name,)*
                }
            }
        }
    };
}

steps! {
    /// open: the directories are there.
    DirectoriesMade = "directories-made",
    /// open: one thing that an earlier process left half done is gone.
    LeftoverRemoved = "leftover-removed",
    /// create a volume: its directory is there, under another name.
    VolumeDirectoryMade = "volume-directory-made",
    /// create a volume: the image is its bottom layer.
    ImageLinked = "image-linked",
    /// create a volume: the layers of a snapshot are its lower ones.
    SnapshotLinkedIn = "snapshot-linked-in",
    /// create a volume: the layer that is written to is there.
    LayerWritten = "layer-written",
    /// create a volume: its manifest is there.
    VolumeManifestWritten = "volume-manifest-written",
    /// create a volume: it has its name.
    VolumePublished = "volume-published",
    /// grow a volume: it has its new size.
    VolumeGrown = "volume-grown",
    /// delete a volume: it no longer has its name.
    VolumeWithdrawn = "volume-withdrawn",
    /// delete a volume: nothing is left.
    VolumeRemoved = "volume-removed",
    /// take a snapshot: an empty layer lies beside the volume's.
    LayerAdded = "layer-added",
    /// take a snapshot: the empty layer is the volume's top.
    SnapshotBegun = "snapshot-begun",
    /// take a snapshot: its directory is there, under another name.
    SnapshotDirectoryMade = "snapshot-directory-made",
    /// take a snapshot: it has all layers.
    SnapshotLinked = "snapshot-linked",
    /// take a snapshot: its manifest is there.
    SnapshotManifestWritten = "snapshot-manifest-written",
    /// take a snapshot: it has its name.
    SnapshotPublished = "snapshot-published",
    /// take a snapshot: the volume knows that it is done.
    SnapshotFinished = "snapshot-finished",
    /// delete a snapshot: it no longer has its name.
    SnapshotWithdrawn = "snapshot-withdrawn",
    /// delete a snapshot: nothing is left.
    SnapshotRemoved = "snapshot-removed",
    /// delete a snapshot that was begun: the volume no longer waits for it.
    SnapshotForgotten = "snapshot-forgotten",
    /// merge two layers: one chain notes that they are one.
    MergeNoted = "merge-noted",
    /// merge two layers: one chain no longer has the upper one.
    LayerDropped = "layer-dropped",
    /// merge two layers: nor its file.
    LayerRemoved = "layer-removed",
    /// an image arrives: its directory is there, under another name.
    ArrivalMade = "arrival-made",
    /// an image arrives: all of its bytes are on the disk.
    ArrivalWritten = "arrival-written",
    /// an image is made of another: it has that one's bytes.
    ImageCloned = "image-cloned",
    /// an image arrives: it was looked at and its manifest is there.
    ImageManifestWritten = "image-manifest-written",
    /// an image arrives: it has its name.
    ImagePublished = "image-published",
    /// delete an image: it no longer has its name.
    ImageWithdrawn = "image-withdrawn",
    /// delete an image: nothing is left.
    ImageRemoved = "image-removed",
    /// write a seed: it is on the disk, under another name.
    SeedWritten = "seed-written",
    /// write a seed: it has its name.
    SeedPublished = "seed-published",
    /// delete a seed: nothing is left.
    SeedRemoved = "seed-removed",
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let found = Step::ALL.iter().find(|step| step.name() == text);
        found.copied().ok_or_else(|| format!("no step is called {text:?}"))
    }
}

/// Called after each step that was taken.
#[derive(Clone, Default)]
pub struct AfterStep(Option<Arc<dyn Fn(Step) + Send + Sync>>);

impl AfterStep {
    pub fn call(hook: impl Fn(Step) + Send + Sync + 'static) -> AfterStep {
        AfterStep(Some(Arc::new(hook)))
    }

    pub(crate) fn took(&self, step: Step) {
        if let Some(hook) = &self.0 {
            hook(step);
        }
    }
}

impl fmt::Debug for AfterStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "AfterStep(hook)" } else { "AfterStep(nothing)" })
    }
}
