//! The sketch file: one Parquet file for a host, with flat columns, and a row for each guest, each of its heavy contents
//! and each of its sampled contents.
//!
//! `docs/internals/sketch-files.md` is the contract with readers.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use serde::Serialize;

use crate::contents::HeavyContent;
use crate::host_facts::HostFacts;
use crate::rate::SamplingRate;
pub use crate::reading::FinishedReading;
use crate::rows::ContentRow;
use crate::subject::SketchSubject;

/// The version of the format.
pub const FORMAT: &str = "2";

/// The columns, in Parquet's notation.
const SCHEMA: &str = "message ksmith_sketch {
    REQUIRED BYTE_ARRAY host (UTF8);
    REQUIRED BYTE_ARRAY boot (UTF8);
    REQUIRED INT64 time (TIMESTAMP(MILLIS,true));
    REQUIRED BYTE_ARRAY guest_id (UTF8);
    REQUIRED BYTE_ARRAY guest_name (UTF8);
    REQUIRED BYTE_ARRAY kind (UTF8);
    OPTIONAL BYTE_ARRAY domain (UTF8);
    REQUIRED BYTE_ARRAY class (UTF8);
    REQUIRED INT64 pages;
    REQUIRED INT64 zero_pages;
    OPTIONAL DOUBLE changing;
    REQUIRED DOUBLE rate;
    OPTIONAL INT64 fingerprint;
    OPTIONAL INT32 copies;
    OPTIONAL INT32 steady;
}";

/// File mode: readable by the group only.
const MODE: u32 = 0o640;

/// A host's facts and guests, ready to be written.
#[derive(Debug)]
pub struct HostSketch<'a> {
    /// The facts about the host.
    pub facts: &'a HostFacts,
    /// Its guests, each with a unique identity, and their readings.
    pub guests: Vec<(&'a SketchSubject, &'a FinishedReading)>,
    /// The id of the key.
    pub key_id: &'a str,
    /// The id of the key that comes next, if all guests have been read with it.
    pub next_key_id: Option<&'a str>,
    /// Bytes in a page.
    pub page_size: u64,
}

/// The error of writing a sketch file.
#[derive(Debug, thiserror::Error)]
#[error("can't write the sketch file {path:?}: {why}")]
pub struct SketchWriteError {
    /// The path of the file.
    pub path: PathBuf,
    /// The cause.
    pub why: io::Error,
}

/// A guest's entry in the file's metadata.
#[derive(Serialize)]
struct GuestEntry<'a> {
    #[serde(flatten)]
    subject: &'a SketchSubject,
    pages: u64,
    zero_pages: u64,
    looked_at: u64,
    /// Number of its rows of heavy contents. `None` if they were not counted.
    heavy: Option<usize>,
    first_ms: i64,
    last_ms: i64,
}

impl<'a> GuestEntry<'a> {
    fn new(subject: &'a SketchSubject, found: &FinishedReading) -> Self {
        let FinishedReading { sketch, first_ms, last_ms, .. } = found;
        Self {
            subject,
            pages: sketch.pages,
            zero_pages: sketch.zero_pages,
            looked_at: sketch.looked_at,
            heavy: sketch.heavy().map(<[HeavyContent]>::len),
            first_ms: *first_ms,
            last_ms: *last_ms,
        }
    }
}

/// A guest with its rows.
struct GuestRows<'a> {
    subject: &'a SketchSubject,
    found: &'a FinishedReading,
    heavy: &'a [HeavyContent],
    rows: Vec<ContentRow>,
}

impl GuestRows<'_> {
    fn count(&self) -> usize {
        1 + self.heavy.len() + self.rows.len()
    }
}

impl HostSketch<'_> {
    /// Returns the rate of the file: the lowest rate of its guests.
    pub fn rate(&self) -> SamplingRate {
        self.guests.iter().map(|(_, found)| found.sketch.rate).max().unwrap_or_default()
    }

    fn metadata(&self) -> Result<Vec<KeyValue>, ParquetError> {
        let json = |text: serde_json::Result<String>| text.map_err(|why| ParquetError::General(why.to_string()));
        let guests: Vec<GuestEntry<'_>> =
            self.guests.iter().map(|(subject, found)| GuestEntry::new(subject, found)).collect();
        let entries = [
            ("format", FORMAT.to_owned()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("key_id", self.key_id.to_owned()),
            ("rate_bits", self.rate().bits().to_string()),
            ("page_size", self.page_size.to_string()),
            ("complete", self.facts.skipped.is_empty().to_string()),
            ("host", json(serde_json::to_string(self.facts))?),
            ("guests", json(serde_json::to_string(&guests))?),
        ];
        let next = self.next_key_id.map(|id| ("next_key_id", id.to_owned()));
        let entries = entries.into_iter().chain(next);
        Ok(entries.map(|(key, value)| KeyValue::new(format!("ksmith.{key}"), value)).collect())
    }

    fn write_to(&self, file: impl Write + Send) -> Result<(), ParquetError> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("ksmith version ", env!("CARGO_PKG_VERSION")).to_owned())
            // Fingerprints are random: a dictionary would only be thrown away.
            .set_column_dictionary_enabled(ColumnPath::from("fingerprint"), false)
            .set_key_value_metadata(Some(self.metadata()?))
            .build();
        let rate = self.rate();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        let mut column = 0;
        while let Some(mut open) = group.next_column()? {
            // The rows of one guest at a time: a host may have a thousand.
            for &(subject, found) in &self.guests {
                let (heavy, rows) = (found.sketch.heavy().unwrap_or_default(), found.sketch.rows(rate).collect());
                self.write_column(column, &mut open, &GuestRows { subject, found, heavy, rows })?;
            }
            open.close()?;
            column += 1;
        }
        group.close()?;
        writer.close()?;
        Ok(())
    }

    fn write_column(
        &self,
        column: usize,
        to: &mut SerializedColumnWriter<'_>,
        of: &GuestRows<'_>,
    ) -> Result<(), ParquetError> {
        let GuestRows { subject, found: FinishedReading { sketch, first_ms, .. }, .. } = of;
        let count = of.count();
        match column {
            0 => text(to, Some(&self.facts.host), count),
            1 => text(to, Some(&self.facts.boot), count),
            2 => same::<Int64Type>(to, *first_ms, count),
            3 => text(to, Some(&subject.guest_id), count),
            4 => text(to, Some(&subject.name), count),
            5 => text(to, Some(subject.kind.word()), count),
            6 => text(to, subject.domain.as_deref(), count),
            7 => text(to, Some(&subject.class), count),
            8 => same::<Int64Type>(to, signed(sketch.pages), count),
            9 => same::<Int64Type>(to, signed(sketch.zero_pages), count),
            10 => match sketch.changing {
                Some(part) => optional::<DoubleType>(to, &vec![part; count], &vec![1; count]),
                None => optional::<DoubleType>(to, &[], &vec![0; count]),
            },
            11 => same::<DoubleType>(to, self.rate().part(), count),
            12 => own::<Int64Type>(to, of, |_| None, |row| Some(row.fingerprint.cast_signed())),
            13 => own::<Int32Type>(to, of, |one| Some(count_of(one.copies)), |row| Some(count_of(row.copies))),
            _ => {
                let steady = |copies| sketch.looked_twice().then(|| count_of(copies));
                own::<Int32Type>(to, of, |one| steady(one.steady), |row| steady(row.steady))
            }
        }
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn count_of(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Writes a text column with the same value in all rows of a guest; nulls if it is `None`.
fn text(to: &mut SerializedColumnWriter<'_>, value: Option<&str>, count: usize) -> Result<(), ParquetError> {
    let values = value.map(|value| vec![ByteArray::from(value); count]).unwrap_or_default();
    // A column that is required has no levels, and takes none.
    let levels = vec![i16::from(value.is_some()); count];
    optional::<ByteArrayType>(to, &values, &levels)
}

fn same<T: DataType>(to: &mut SerializedColumnWriter<'_>, value: T::T, count: usize) -> Result<(), ParquetError> {
    to.typed::<T>().write_batch(&vec![value; count], None, None).map(|_| ())
}

fn optional<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    values: &[T::T],
    levels: &[i16],
) -> Result<(), ParquetError> {
    let typed = to.typed::<T>();
    let levels = (typed.get_descriptor().max_def_level() > 0).then_some(levels);
    typed.write_batch(values, levels, None).map(|_| ())
}

/// Writes a column of the contents, with a null in the guest's own row.
fn own<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    guest: &GuestRows<'_>,
    of_heavy: impl Fn(&HeavyContent) -> Option<T::T>,
    of_row: impl Fn(&ContentRow) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let found: Vec<Option<T::T>> = guest.heavy.iter().map(of_heavy).chain(guest.rows.iter().map(of_row)).collect();
    let levels: Vec<i16> = [0].into_iter().chain(found.iter().map(|value| i16::from(value.is_some()))).collect();
    let values: Vec<T::T> = found.into_iter().flatten().collect();
    optional::<T>(to, &values, &levels)
}

/// Replaces the file atomically: a reader finds either the old file or the complete new one.
///
/// # Errors
/// The directory is missing, not writable or full.
pub fn write_file(path: &Path, sketch: &HostSketch<'_>) -> Result<u64, SketchWriteError> {
    write(path, sketch).map_err(|why| SketchWriteError { path: path.to_owned(), why })
}

fn write(path: &Path, sketch: &HostSketch<'_>) -> io::Result<u64> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !may_be_replaced(path, directory) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file: name another"));
    }
    // Readers take `*.parquet`, and so never a file that is half written.
    let file = tempfile::Builder::new().prefix(".ksmith-sketch-").suffix(".part").tempfile_in(directory)?;
    sketch.write_to(file.as_file()).map_err(|error| match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(cause) => *cause,
            Err(cause) => io::Error::other(cause),
        },
        error => io::Error::other(error),
    })?;
    file.as_file().set_permissions(Permissions::from_mode(MODE))?;
    file.as_file().sync_all()?;
    let bytes = file.as_file().metadata()?.len();
    file.persist(path).map_err(|error| error.error)?;
    File::open(directory)?.sync_all()?;
    Ok(bytes)
}

/// Returns true if a new file may replace the path. It may not replace a device or a pipe, which other programs use.
fn may_be_replaced(path: &Path, directory: &Path) -> bool {
    // `/dev/stdout` is a link, and may lead to a regular file.
    directory != Path::new("/dev") && fs::metadata(path).map_or(true, |there| there.is_file())
}
