//! Estimates over memory images: files with the memory of guests that do not run here.
//!
//! Each image is read once, and 8 bytes are remembered for each of its pages. [`format`] tells what a file is; a file in
//! which pages do not lie whole is refused, since its bytes would compare as pages that no guest has.

mod elf;
mod error;
mod format;
#[cfg(fuzzing)]
pub mod fuzzing;
mod paced;
mod stream;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ksmith_core::sketch::exact::GuestPages;
use ksmith_core::sketch::{GuestOutcome, MergeRules};

pub use self::error::ImageError;
use self::error::ImageFault;
use self::format::ImageFormat;
use self::paced::PacedFile;
use super::exact;
use super::report::{EstimateReport, GuestReport, MatrixReport};
use super::run::EstimateMode;
use super::sums::GuestScanSums;
use crate::memory::pace::ReadPace;
use crate::memory::progress::{ProgressMeter, ReadProgress};
use crate::memory::salt::FingerprintSalt;
use crate::memory::scan::cpu_seconds;
use crate::memory::work::share_out;

/// Bytes of a guest's page.
const PAGE: usize = 4096;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// Options of an estimate over images.
#[derive(Debug, Clone)]
pub struct ImageOptions {
    /// The files.
    pub paths: Vec<PathBuf>,
    /// Number of reading threads.
    pub threads: usize,
    /// Bytes per second, all threads together.
    pub max_rate: Option<u64>,
    /// True to compare images in pairs.
    pub wants_pairs: bool,
    /// The progress meter.
    pub meter: Option<Arc<dyn ProgressMeter>>,
    /// KSM's settings that decide the savings.
    pub rules: MergeRules,
}

impl ImageOptions {
    /// Creates the default options for these files.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, threads: 1, max_rate: None, wants_pairs: false, meter: None, rules: MergeRules::default() }
    }
}

/// An image that is open, with its size.
struct OpenImage<'a> {
    path: &'a Path,
    file: File,
    format: ImageFormat,
    bytes: u64,
    /// Device and inode of a file, or the device itself with 0.
    identity: (u64, u64),
}

/// Estimates what KSM would save if the guests of these images ran together. Page sizes other than 4 KiB are not known.
///
/// # Errors
/// A file can't be read, is no memory image, or is named twice.
pub fn estimate_images(options: &ImageOptions) -> Result<EstimateReport, ImageError> {
    let (started, cpu_before) = (Instant::now(), cpu_seconds());
    let images = options.paths.iter().map(|path| open_image(path).map_err(|fault| fault.of_file(path)));
    let images: Vec<OpenImage<'_>> = images.collect::<Result<_, _>>()?;
    check_each_is_another(&images)?;
    let salt = FingerprintSalt::new().map_err(|why| ImageError::NoRandomNumbers(why.to_string()))?;
    let pages = read_images(&images, &salt, options)?;
    let guests: Vec<GuestPages<'_>> =
        pages.iter().map(|pieces| GuestPages { pieces: pieces.iter().map(Vec::as_slice).collect() }).collect();
    let outcome = exact::outcome(&guests, &options.rules, options.wants_pairs, options.threads);
    let report = |name: String, outcome: &GuestOutcome| {
        let leaving = if options.rules.use_zero_pages { outcome.zero.round() as u64 } else { 0 };
        let sums = GuestScanSums { leaving, is_mergeable: true, ..GuestScanSums::default() };
        let mut report = GuestReport::new(name, None, Vec::new(), outcome, &sums, PAGE as u64);
        let verdict = sums.weigh(outcome, PAGE as u64);
        report.weigh(&verdict);
        (report, verdict)
    };
    let names: Vec<String> = images.iter().map(|image| image.shown_name(&images)).collect();
    let (total, verdict) = report("total".to_owned(), &outcome.total);
    Ok(EstimateReport {
        mode: EstimateMode::Exact.name(),
        rate: None,
        matrix: outcome.pairs.as_ref().map(|pairs| MatrixReport::new(names.clone(), pairs, PAGE as u64)),
        guests: names.into_iter().zip(&outcome.guests).map(|(name, guest)| report(name, guest).0).collect(),
        total,
        read_bytes: pages.iter().flatten().map(|piece| (piece.len() * PAGE) as u64).sum(),
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu_before,
        sketch_bytes: None,
        advice: verdict.advice,
        ksmd_cpu_seconds_per_day: verdict.keep_cpu_seconds_per_day,
        verdict: verdict.to_string(),
        huge_pages: None,
        running: None,
        within_nodes_saved_bytes: None,
        skipped: Vec::new(),
    })
}

impl OpenImage<'_> {
    /// Returns the name of the file; its path where another image has the same name.
    fn shown_name(&self, all: &[OpenImage<'_>]) -> String {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let is_single = all.iter().filter(|other| name(other.path) == name(self.path)).count() == 1;
        name(self.path).filter(|_| is_single).unwrap_or_else(|| self.path.display().to_string())
    }
}

/// Refuses a file that is named twice, also by another link to it.
fn check_each_is_another(images: &[OpenImage<'_>]) -> Result<(), ImageError> {
    for (index, image) in images.iter().enumerate() {
        if let Some(other) = images[..index].iter().find(|other| other.identity == image.identity) {
            let [path, other] = [image.path, other.path].map(|path| path.display().to_string());
            return Err(ImageError::NamedTwice { path, other });
        }
    }
    Ok(())
}

fn open_image(path: &Path) -> Result<OpenImage<'_>, ImageFault> {
    // Opening a pipe would wait for its other end.
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(ImageFault::Other("is neither a file nor a block device"));
    }
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    let identity = if kind.is_file() { (found.dev(), found.ino()) } else { (found.rdev(), 0) };
    // The length of a block device is not among its metadata.
    let bytes = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut head = Vec::with_capacity(PAGE);
    (&mut file).take(PAGE as u64).read_to_end(&mut head)?;
    file.rewind()?;
    let format = ImageFormat::from_head(&head, bytes)?;
    Ok(OpenImage { path, file, format, bytes, identity })
}

/// Returns the fingerprints of each image, in pieces.
fn read_images(
    images: &[OpenImage<'_>],
    salt: &FingerprintSalt,
    options: &ImageOptions,
) -> Result<Vec<Vec<Vec<u64>>>, ImageError> {
    let pace = ReadPace::new(options.max_rate);
    let all = images.iter().map(|image| image.bytes).sum();
    let progress = ReadProgress::new(options.meter.as_deref(), all, "reading");
    let pages: Vec<Mutex<Result<Vec<Vec<u64>>, ImageFault>>> =
        images.iter().map(|_| Mutex::new(Ok(Vec::new()))).collect();
    share_out(images.len(), options.threads, |_, at| {
        let Some((image, place)) = images.get(at).zip(pages.get(at)) else { return };
        let file = PacedFile::new(&image.file, &pace, &progress);
        let read = image.format.read_pages(file, image.bytes, salt);
        *place.lock().unwrap_or_else(PoisonError::into_inner) = read;
    });
    let read = images.iter().zip(pages).map(|(image, pages)| {
        let pages = pages.into_inner().unwrap_or_else(PoisonError::into_inner);
        pages.map_err(|fault| fault.of_file(image.path))
    });
    read.collect()
}

impl ImageFormat {
    /// Returns the fingerprints of all pages of a file of so many bytes, in pieces.
    fn read_pages(
        self,
        file: impl Read + Seek,
        bytes: u64,
        salt: &FingerprintSalt,
    ) -> Result<Vec<Vec<u64>>, ImageFault> {
        match self {
            Self::Raw => read_raw(file, salt).map(|pages| vec![pages]),
            Self::Elf => elf::read_pages(file, bytes, salt),
            Self::QemuStream => stream::read_pages(file, salt),
        }
    }
}

/// Reads pages to the end of the file.
fn read_raw(mut file: impl Read, salt: &FingerprintSalt) -> Result<Vec<u64>, ImageFault> {
    let mut pages = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let filled = fill(&mut file, &mut chunk)?;
        push_pages(chunk.get(..filled).unwrap_or_default(), salt, &mut pages);
        if filled < chunk.len() {
            return Ok(pages);
        }
    }
}

/// Adds the fingerprints of whole pages.
fn push_pages(bytes: &[u8], salt: &FingerprintSalt, pages: &mut Vec<u64>) {
    pages.extend(bytes.as_chunks::<PAGE>().0.iter().map(|page| salt.fingerprint(page)));
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> Result<usize, ImageFault> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(filled)
}
