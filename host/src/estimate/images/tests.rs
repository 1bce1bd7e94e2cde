//! Tests of images: made-up files of each format.

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A page with this number in all its words; 0 is a page of zeros.
fn page(content: u64) -> Vec<u8> {
    content.to_le_bytes().repeat(PAGE / 8)
}

fn pages(contents: &[u64]) -> Vec<u8> {
    contents.iter().flat_map(|content| page(*content)).collect()
}

fn estimate(files: &[(&str, Vec<u8>)]) -> Result<EstimateReport, String> {
    let directory = TempDir::new().unwrap();
    let written = files.iter().map(|(name, bytes)| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    });
    let options = ImageOptions { wants_pairs: true, ..ImageOptions::new(written.collect()) };
    let place = format!("{}/", directory.path().display());
    estimate_images(&options).map_err(|error| error.to_string().replace(&place, ""))
}

#[test]
fn a_file_that_is_named_twice_is_refused() {
    let directory = TempDir::new().unwrap();
    let [first, link, hard] = ["a.vmem", "b.vmem", "c.vmem"].map(|name| directory.path().join(name));
    std::fs::write(&first, pages(&[1, 2])).unwrap();
    std::os::unix::fs::symlink(&first, &link).unwrap();
    std::fs::hard_link(&first, &hard).unwrap();
    for other in [first.clone(), link, hard] {
        let error = estimate_images(&ImageOptions::new(vec![first.clone(), other])).unwrap_err();
        assert!(matches!(error, ImageError::NamedTwice { .. }), "{error}");
    }
}

/// Returns pages of zeros, equal within, equal across, and all, of each image.
fn counted(files: &[(&str, Vec<u8>)]) -> Vec<[u64; 4]> {
    let of = |guest: &GuestReport| {
        [guest.zero_bytes, guest.equal_within_bytes, guest.equal_across_bytes, guest.present_bytes]
            .map(|bytes| bytes / PAGE as u64)
    };
    estimate(files).unwrap().guests.iter().map(of).collect()
}

/// Makes an ELF core of segments, the first at this place of the file; `is_many` counts them in a section.
fn elf(segments: &[Vec<u8>], first: usize, is_many: bool) -> Vec<u8> {
    let count = segments.len() as u64;
    let mut file = vec![0; first];
    let put = |file: &mut Vec<u8>, at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(&mut file, 0, b"\x7fELF\x02\x01\x01");
    put(&mut file, 16, &4_u16.to_le_bytes());
    put(&mut file, 32, &128_u64.to_le_bytes());
    put(&mut file, 40, &64_u64.to_le_bytes());
    put(&mut file, 54, &56_u16.to_le_bytes());
    put(&mut file, 56, &(if is_many { 0xffff } else { count as u16 }).to_le_bytes());
    put(&mut file, 64 + 44, &(count as u32).to_le_bytes());
    let mut at = 128;
    for segment in segments {
        let place = file.len() as u64;
        put(&mut file, at, &1_u32.to_le_bytes());
        put(&mut file, at + 8, &place.to_le_bytes());
        put(&mut file, at + 32, &(segment.len() as u64).to_le_bytes());
        file.extend(segment);
        at += 56;
    }
    file
}

/// Makes a stream of one block with these pages: address and content, in the order of writing.
fn stream(block: &str, block_pages: u64, records: &[(u64, u64)]) -> Vec<u8> {
    let name = |name: &str| [&[name.len() as u8], name.as_bytes()].concat();
    let word = |number: u64| number.to_be_bytes().to_vec();
    let size = block_pages * PAGE as u64;
    let mut file =
        [b"QEVM\0\0\0\x03\x07\0\0\0\x02pc".to_vec(), vec![1, 0, 0, 0, 2], name("ram"), vec![0; 8]].concat();
    file.extend([word(size | flag_of("sizes")), name(block), word(size), word(flag_of("end"))].concat());
    file.extend([0x7e, 0, 0, 0, 2, 2, 0, 0, 0, 2]);
    for (at, (number, content)) in records.iter().enumerate() {
        if at > 0 && at % 2 == 0 {
            // Another section, which goes on in the same block.
            file.extend([word(flag_of("end")), vec![0x7e, 0, 0, 0, 2, 2, 0, 0, 0, 2]].concat());
        }
        let (same, id) = if at == 0 { (0, name(block)) } else { (flag_of("same"), Vec::new()) };
        let kind = if *content == 0 { flag_of("zero") } else { flag_of("page") };
        file.extend([word((number * PAGE as u64) | kind | same), id].concat());
        file.extend(if *content == 0 { vec![0] } else { page(*content) });
    }
    file.extend(word(flag_of("end")));
    file.extend([[3, 0, 0, 0, 2].as_slice(), &word(flag_of("end"))].concat());
    file.extend([4, 0, 0, 0, 9, 3, b'c', b'p', b'u']);
    file
}

fn flag_of(name: &str) -> u64 {
    match name {
        "zero" => 0x02,
        "sizes" => 0x04,
        "page" => 0x08,
        "end" => 0x10,
        _ => 0x20,
    }
}

#[test]
fn pages_are_compared_within_an_image_and_across_images() {
    let one = pages(&[0, 7, 7, 8, 9]);
    let other = pages(&[0, 0, 9, 8, 10, 11]);
    assert_eq!(counted(&[("a.vmem", one.clone()), ("b.raw", other.clone())]), [[1, 1, 2, 5], [2, 0, 2, 6]]);
    let report = estimate(&[("a.vmem", one), ("b.raw", other)]).unwrap();
    // Two pages of each of 0, 7, 8 and 9 are one; the third of zeros too.
    assert_eq!(report.total.expected_saved_bytes, 5 * PAGE as u64);
    assert_eq!((report.read_bytes, report.mode), (11 * PAGE as u64, "exact"));
    assert_eq!(report.guests[0].name, "a.vmem");
    let pairs = report.matrix.unwrap().shared_bytes;
    assert_eq!((pairs[0][0], pairs[0][1]), (PAGE as u64, 2 * PAGE as u64));
}

#[test]
fn segments_of_a_core_are_read_from_where_they_begin() {
    let parts = [pages(&[0, 7, 7]), pages(&[8, 9])];
    for first in [4096, 4096 + 1371] {
        for is_many in [false, true] {
            let core = elf(&parts, first, is_many);
            assert_eq!(counted(&[("a.core", core), ("b.raw", pages(&[9, 8]))]), [[1, 1, 2, 5], [0, 0, 2, 2]]);
        }
    }
}

#[test]
fn a_part_that_two_segments_name_counts_once() {
    let mut core = elf(&[pages(&[7, 8, 9]), pages(&[10])], 4096, false);
    // The second segment begins at the second page of the first one, and ends with the file.
    core[128 + 56 + 8..128 + 56 + 16].copy_from_slice(&(4096_u64 + 4096).to_le_bytes());
    core[128 + 56 + 32..128 + 56 + 40].copy_from_slice(&(3 * 4096_u64).to_le_bytes());
    assert_eq!(counted(&[("a.core", core)]), [[0, 0, 0, 4]]);
}

#[test]
fn of_a_page_that_a_stream_has_twice_the_last_content_counts() {
    let state = stream("pc.ram", 5, &[(0, 7), (1, 7), (2, 0), (3, 8), (1, 9)]);
    assert_eq!(counted(&[("a.state", state), ("b.raw", pages(&[7]))]), [[1, 0, 1, 4], [0, 0, 1, 1]]);
}

#[test]
fn a_file_in_which_pages_do_not_lie_whole_is_refused_with_the_remedy() {
    let refused = |bytes: &[u8]| estimate(&[("a", bytes.to_vec())]).unwrap_err();
    let padded = |magic: &[u8]| refused(&[magic, &[0; 4096]].concat()[..4096]);
    for (magic, why) in [
        (&b"KDUMP   "[..], "a is a compressed dump: take it with `virsh dump --memory-only --format elf`"),
        (b"LibvirtQemudSave", "take a dump with `virsh dump --memory-only`"),
        (b"QFI\xfb", "a disk image"),
        (b"\x1f\x8b\x08", "decompress it first"),
        (b"\xd2\xbe\xd2\xbe", "name the .vmem file beside it"),
        (b"\x7fELF\x01\x01", "not a core of a 64-bit machine"),
        (b"\x7fELF\x02\x01", "a program, not a core"),
        (b"QEVM\0\0\0\x02", "its version is unknown"),
    ] {
        let said = padded(magic);
        assert!(said.starts_with("a is ") && said.contains(why), "{said}");
    }
    assert!(refused(&[1; 4097]).contains("no multiple of 4,096"));
    assert_eq!(refused(b""), "a is empty");
    assert!(
        estimate_images(&ImageOptions::new(vec!["/nonexistent/a".into()]))
            .unwrap_err()
            .to_string()
            .contains("can't read /nonexistent/a: ")
    );
}

#[test]
fn an_image_that_breaks_off_is_damaged_and_no_smaller_image() {
    let whole = [elf(&[pages(&[0, 7, 7])], 4096, false), stream("pc.ram", 3, &[(0, 7), (1, 7), (2, 0)])];
    for file in whole {
        for length in [5, 20, 60, 130, file.len() - 4096, file.len() - 20] {
            let said = estimate(&[("a", file[..length].to_vec())]).unwrap_err();
            assert!(said.starts_with("a is "), "{length}: {said}");
        }
    }
}

#[test]
fn a_stream_that_claims_more_memory_than_it_can_hold_takes_none() {
    let mut state = stream("pc.ram", 1, &[(0, 7)]);
    let sizes = state.windows(6).position(|part| part == b"pc.ram").unwrap();
    let huge: u64 = 1 << 50;
    state[sizes - 9..sizes - 1].copy_from_slice(&(huge | 4).to_be_bytes());
    state[sizes + 6..sizes + 14].copy_from_slice(&huge.to_be_bytes());
    assert!(estimate(&[("a", state)]).unwrap_err().contains("before the memory is complete"));
}

#[test]
fn a_stream_may_lack_most_of_a_guests_memory() {
    // A virtio-mem of 256 GiB, of which two pages are plugged.
    let state = stream("mem0", 1 << 26, &[(0, 7), ((1 << 26) - 1, 7)]);
    assert_eq!(counted(&[("a.state", state)]), [[0, 1, 0, 2]]);
    assert!(estimate(&[("a", stream("mem0", 4, &[(4, 7)]))]).unwrap_err().contains("a page is in no block"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn all_formats_of_one_memory_have_the_same_figures(
        contents in prop::collection::vec(0_u64..6, 1..40),
        cut in any::<prop::sample::Index>(),
        first in 4096_usize..9000,
    ) {
        let raw = pages(&contents);
        let at = cut.index(contents.len()) * PAGE;
        let core = elf(&[raw[..at].to_vec(), raw[at..].to_vec()], first, false);
        let records: Vec<(u64, u64)> = (0..).zip(contents.iter().copied()).collect();
        let state = stream("pc.ram", contents.len() as u64, &records);
        let expected = counted(&[("a", raw)]);
        prop_assert_eq!(&counted(&[("a", core)]), &expected);
        prop_assert_eq!(&counted(&[("a", state)]), &expected);
    }

    #[test]
    fn any_file_is_read_or_refused(
        magic in prop::sample::select(vec![&b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0"[..], b"QEVM\0\0\0\x03", b""]),
        rest in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let _ = estimate(&[("a", [magic, &rest].concat())]);
    }
}
