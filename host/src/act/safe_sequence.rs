//! Changing the two knobs that the kernel accepts only while nothing is merged.

use std::ops::ControlFlow;

use ksmith_core::knobs::Knob;

use super::{ActError, KnobChange, KnobWriter, UnmergeHeadroom, UnmergeOptions, unmerge};

/// Sets `merge_across_nodes` or `max_page_sharing` to `value`: stops ksmd, unmerges if anything is merged, writes, and
/// restores `run`. Any other knob is just set. Returns all changes, those of `run` included. `progress` is called
/// during unmerging as by [`unmerge`], and may break it off.
///
/// # Errors
/// Memory does not suffice to unmerge (and `how.force` is not set), it was broken off, or a write failed. `run` is
/// restored in any case; both errors are returned if that fails as well.
pub fn safe_sequence(
    writer: &mut KnobWriter,
    knob: Knob,
    value: u64,
    how: UnmergeOptions,
    progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Vec<KnobChange>, Vec<ActError>> {
    if !knob.needs_nothing_merged() {
        return writer.set(knob, value).map(Vec::from_iter).map_err(|error| vec![error]);
    }
    let (changes, errors) = safe_sequence_of(writer, &[(knob, value)], how, progress);
    if errors.is_empty() { Ok(changes) } else { Err(errors) }
}

/// Sets several knobs that need everything unmerged, with one unmerging.
pub(super) fn safe_sequence_of(
    writer: &mut KnobWriter,
    settings: &[(Knob, u64)],
    how: UnmergeOptions,
    progress: impl FnMut(u64) -> ControlFlow<()>,
) -> (Vec<KnobChange>, Vec<ActError>) {
    let (mut changes, mut errors) = (Vec::new(), Vec::new());
    let mut due = Vec::new();
    for &(knob, value) in settings {
        match writer.get(knob) {
            Ok(Some(old)) if old != value => due.push((knob, value)),
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
    }
    let (Some(&(first, _)), run) = (due.first(), writer.get(Knob::Run)) else { return (changes, errors) };
    let run = match run {
        Ok(Some(run)) => run,
        Ok(None) => return (changes, errors),
        Err(error) => {
            errors.push(error);
            return (changes, errors);
        }
    };
    match quiet(writer, first, run, how, progress, &mut changes) {
        Ok(()) => {
            for (knob, value) in due {
                match writer.set(knob, value) {
                    Ok(change) => changes.extend(change),
                    Err(error) => errors.push(error),
                }
            }
        }
        Err(error) => errors.push(error),
    }
    // A 2 that was there before has come back by the unmerging, or nothing was merged under it.
    if run != 2 && !writer.is_dry_run() {
        match writer.set(Knob::Run, run) {
            Ok(change) => changes.extend(change),
            Err(error) => errors.push(error),
        }
    }
    (changes, errors)
}

/// Stops ksmd and unmerges everything, if anything is merged.
fn quiet(
    writer: &mut KnobWriter,
    knob: Knob,
    run: u64,
    how: UnmergeOptions,
    progress: impl FnMut(u64) -> ControlFlow<()>,
    changes: &mut Vec<KnobChange>,
) -> Result<(), ActError> {
    if run == 1 && !UnmergeHeadroom::now(writer.root()).is_anything_merged {
        changes.extend(writer.set(Knob::Run, 0)?);
    }
    // Looked at again: ksmd may have merged until its batch ended.
    if UnmergeHeadroom::now(writer.root()).is_anything_merged {
        let old = writer.get(Knob::Run)?.unwrap_or(run);
        unmerge(writer, how, progress).map_err(|source| ActError::NeedsUnmerge { knob, source })?;
        if old != 2 {
            changes.push(KnobChange { knob: Knob::Run, old, new: 2 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::writer::tests::whole_tree;
    use super::*;
    use crate::root::Root;

    fn go_on(_: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn texts(changes: &[KnobChange]) -> Vec<String> {
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ksmd_is_quieted_around_the_write() {
        let tree = whole_tree();
        let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
        writer.set(Knob::Run, 1).unwrap();
        let changes =
            safe_sequence(&mut writer, Knob::MaxPageSharing, 16, UnmergeOptions::default(), go_on).unwrap();
        assert_eq!(texts(&changes), ["run 1 -> 0", "max_page_sharing 256 -> 16", "run 0 -> 1"]);
        assert!(
            safe_sequence(&mut writer, Knob::MaxPageSharing, 16, UnmergeOptions::default(), go_on)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn what_is_merged_is_unmerged_first() {
        let tree = whole_tree();
        let root = Root::at(tree.path());
        fs::write(tree.path().join("sys/kernel/mm/ksm/pages_shared"), "5\n").unwrap();
        let mut writer = KnobWriter::new(&root, false);
        writer.set(Knob::Run, 1).unwrap();
        let changes =
            safe_sequence(&mut writer, Knob::MergeAcrossNodes, 0, UnmergeOptions::default(), go_on).unwrap();
        assert_eq!(texts(&changes), ["run 1 -> 2", "merge_across_nodes 1 -> 0", "run 2 -> 1"]);
    }

    #[test]
    fn without_memory_nothing_changes_and_the_error_says_why() {
        let tree = whole_tree();
        fs::write(tree.path().join("sys/kernel/mm/ksm/pages_sharing"), "5\n").unwrap();
        let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
        writer.set(Knob::Run, 1).unwrap();
        let errors =
            safe_sequence(&mut writer, Knob::MaxPageSharing, 16, UnmergeOptions::default(), go_on).unwrap_err();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].to_string().contains("max_page_sharing can only be changed while nothing is merged"));
        assert_eq!(writer.get(Knob::MaxPageSharing).unwrap(), Some(256));
        assert_eq!(writer.get(Knob::Run).unwrap(), Some(1));
    }
}
