//! The guests of a run, which start, obey, are counted and end as the timeline says.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::group::{ProcessGroup, apart};
use super::{LabBench, LabError};
use crate::measure::{AttainableStep, KnownGuests};
use crate::scenario::{GuestAction, GuestInstance, LabGuestKind, QemuGuest, TimelineAction};
use crate::truth::{filled_guest, read_rollup};
use crate::{GuestError, MemoryGuest};
use ksmith_host::root::Root;

/// The running guests, the attainable savings, and the guests' work. Guests are ended on drop.
#[derive(Debug)]
pub(super) struct GuestStage<'a> {
    /// Path of the ksmith program, under the name of a hypervisor.
    program: &'a Path,
    instances: &'a [GuestInstance],
    began: Instant,
    memory: BTreeMap<usize, MemoryGuest>,
    programs: BTreeMap<usize, ProcessGroup>,
    known: KnownGuests,
    pub(super) attainable: Vec<AttainableStep>,
    pub(super) work_pages: u64,
    pub(super) rewrite_time: Duration,
}

/// A guest that gets a command, with the part that the command makes unique (`true`) or restores (`false`).
type Told = (usize, Option<(usize, bool)>);

impl<'a> GuestStage<'a> {
    pub(super) fn new(program: &'a Path, instances: &'a [GuestInstance], began: Instant) -> Self {
        Self {
            program,
            instances,
            began,
            memory: BTreeMap::new(),
            programs: BTreeMap::new(),
            known: KnownGuests::default(),
            attainable: Vec::new(),
            work_pages: 0,
            rewrite_time: Duration::ZERO,
        }
    }

    /// Performs the actions of one moment. All guests with the same command obey it at the same time.
    pub(super) fn perform(
        &mut self,
        actions: &[TimelineAction],
        bench: &mut impl LabBench,
    ) -> Result<(), LabError> {
        let mut started = Vec::new();
        let mut told: BTreeMap<String, Vec<Told>> = BTreeMap::new();
        for action in actions {
            match action.deed {
                GuestAction::Start(guest) => {
                    self.start(guest)?;
                    started.push(guest);
                }
                GuestAction::Stop(guest) => self.stop(guest)?,
                GuestAction::Khugepaged(pace) => bench.set_khugepaged(pace).map_err(LabError::Setting)?,
                GuestAction::Rewrite { guest, part } => {
                    told.entry(format!("rewrite {part}")).or_default().push((guest, Some((part, true))));
                }
                GuestAction::Refill { guest, part } => {
                    told.entry(format!("refill {part}")).or_default().push((guest, Some((part, false))));
                }
                GuestAction::Work { guest, percent } => {
                    told.entry(format!("work {percent}")).or_default().push((guest, None));
                }
            }
        }
        for guest in started {
            self.wait_ready(guest)?;
        }
        for (command, guests) in told {
            self.command_guests(&command, &guests)?;
        }
        Ok(())
    }

    /// The PIDs of the guests with known memory, and the bytes of their contents.
    pub(super) fn filled_guests(&self) -> impl Iterator<Item = (u32, u64)> {
        self.memory.values().map(filled_guest)
    }

    /// The proportional set size of all running guests, of the processes that were started. `None` if one can't be read.
    pub(super) fn held_bytes(&self) -> Option<u64> {
        let memory = self.memory.values().map(MemoryGuest::pid);
        let programs = self.programs.values().map(ProcessGroup::pid);
        let root = Root::host();
        memory.chain(programs).map(|pid| read_rollup(&root, pid)?.pss).sum()
    }

    /// Counts the work of the remaining guests and ends them. Returns the number of pages with wrong content.
    pub(super) fn finish(&mut self) -> Result<usize, LabError> {
        for guest in self.memory.values_mut() {
            self.work_pages += guest.work_done()?;
        }
        let wrong =
            self.memory.values_mut().try_fold(0, |sum, guest| Ok::<_, GuestError>(sum + guest.wrong_pages()?))?;
        self.memory.clear();
        for group in self.programs.values_mut() {
            group.end(Duration::from_secs(5)).map_err(LabError::System)?;
        }
        self.programs.clear();
        Ok(wrong)
    }

    fn start(&mut self, guest: usize) -> Result<(), LabError> {
        let Some(instance) = self.instances.get(guest) else { return Ok(()) };
        let name = &instance.name;
        match &instance.kind {
            LabGuestKind::Memory(contents) | LabGuestKind::HugeMemory(contents) => {
                let mut command = Command::new(self.program);
                // ksmtuned finds guests by `pgrep -f '^qemu-system.*-enable-kvm'`.
                command.arg0("qemu-system-x86_64 -enable-kvm");
                apart(&mut command);
                let is_huge = instance.kind.is_huge();
                let memory = MemoryGuest::start_by(self.program, command, Some(name), is_huge, contents)?;
                self.memory.insert(guest, memory);
            }
            LabGuestKind::Qemu(qemu) => self.launch(guest, qemu_command(qemu, name), name)?,
            LabGuestKind::Command(words) => {
                let mut command = Command::new(words.first().map_or("", String::as_str));
                command.args(words.iter().skip(1));
                self.launch(guest, command, name)?;
            }
        }
        Ok(())
    }

    fn launch(&mut self, guest: usize, mut command: Command, name: &str) -> Result<(), LabError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let program = command.get_program().to_string_lossy().into_owned();
        let group = ProcessGroup::start(&mut command).map_err(|source| LabError::Guest {
            name: name.to_owned(),
            why: format!("can't start {program}: {source}"),
        })?;
        self.programs.insert(guest, group);
        Ok(())
    }

    fn wait_ready(&mut self, guest: usize) -> Result<(), LabError> {
        if let Some(memory) = self.memory.get_mut(&guest) {
            memory.wait_ready()?;
            self.known.start(guest, memory.contents());
            self.note_attainable();
        }
        Ok(())
    }

    fn stop(&mut self, guest: usize) -> Result<(), LabError> {
        if let Some(mut memory) = self.memory.remove(&guest) {
            self.work_pages += memory.work_done()?;
            self.known.stop(guest);
            self.note_attainable();
        }
        if let Some(mut group) = self.programs.remove(&guest) {
            group.end(Duration::from_secs(5)).map_err(LabError::System)?;
        }
        Ok(())
    }

    fn command_guests(&mut self, command: &str, told: &[Told]) -> Result<(), LabError> {
        let mark = |known: &mut KnownGuests, when: bool| {
            for (guest, changed) in told {
                if let Some((part, is_rewritten)) = changed.filter(|(_, is_rewritten)| *is_rewritten == when) {
                    known.rewritten(*guest, part, is_rewritten);
                }
            }
        };
        // A rewritten part stops being attainable at once; a refilled part is attainable only when it is
        // complete.
        mark(&mut self.known, true);
        self.note_attainable();
        let began = Instant::now();
        let is_meant = |guest: &usize| told.iter().any(|(meant, _)| meant == guest);
        let guests = self.memory.iter_mut().filter(|(guest, _)| is_meant(guest)).map(|(_, memory)| memory);
        MemoryGuest::command_all(guests, command)?;
        if told.iter().any(|(_, changed)| changed.is_some()) {
            self.rewrite_time += began.elapsed();
        }
        mark(&mut self.known, false);
        self.note_attainable();
        Ok(())
    }

    fn note_attainable(&mut self) {
        let bytes = self.known.attainable_bytes();
        if self.attainable.last().map_or(0, |step| step.bytes) != bytes {
            self.attainable.push(AttainableStep { at: self.began.elapsed().as_secs_f64(), bytes });
        }
    }
}

fn qemu_command(qemu: &QemuGuest, name: &str) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-name", &format!("guest={name}"), "-accel", &qemu.accel, "-display", "none", "-no-reboot"]);
    command.args(["-monitor", "none", "-serial", "null", "-nic", "none", "-m", &qemu.memory_mib.to_string()]);
    if let Some(kernel) = &qemu.kernel {
        command.arg("-kernel").arg(kernel).args(["-append", &qemu.append]);
    }
    if let Some(initrd) = &qemu.initrd {
        command.arg("-initrd").arg(initrd);
    }
    if let Some(disk) = &qemu.disk {
        command.arg("-snapshot").arg("-hda").arg(disk);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qemu_guest_is_one_command() {
        let qemu = QemuGuest {
            kernel: Some("/boot/vmlinuz".into()),
            initrd: None,
            append: "quiet".to_owned(),
            disk: Some("disk.img".into()),
            memory_mib: 256,
            accel: "tcg".to_owned(),
            hint: String::new(),
        };
        let command = qemu_command(&qemu, "vm-1");
        let line: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        let line = line.join(" ");
        for part in ["guest=vm-1", "-accel tcg", "-m 256", "-kernel /boot/vmlinuz -append quiet", "-hda disk.img"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!line.contains("-initrd"));
    }
}
