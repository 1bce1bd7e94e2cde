//! Launching a program opted in: finds it, chooses the method, and starts it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use ksmith_core::field::KernelVersion;
use ksmith_core::job::{
    JUMPS_OVER_HOLES, MarkedRanges, OptInMethod, OptInRefusal, OptInRequest, OptInSupport, ProgramKind,
    choose_method, names_a_sanitizer,
};

use super::wait::BlockedSignals;
use crate::root::Root;

/// `PR_SET_MEMORY_MERGE` and `PR_GET_MEMORY_MERGE` of `linux/prctl.h`, which libc lacks.
const PR_SET_MEMORY_MERGE: libc::c_int = 67;
const PR_GET_MEMORY_MERGE: libc::c_int = 68;

/// The first kernel that keeps the opt-in over exec.
const SURVIVES_EXEC: KernelVersion = KernelVersion::new(6, 7);

/// The tunable of glibc that makes malloc(3) use huge pages (`MADV_HUGEPAGE`, glibc 2.35).
const MALLOC_IN_HUGE_PAGES: &str = "glibc.malloc.hugetlb=1";

/// Bytes of a program's file that are read to recognize its kind.
const HEAD: u64 = 1 << 20;

/// The deepest nesting of scripts as interpreters, as in the kernel.
const DEEPEST: usize = 4;

/// An error from starting a program opted in.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No program has this name.
    #[error("there is no program {0:?}: give its path, or a name that is found in PATH")]
    NotFound(OsString),
    /// The program can't be read or run.
    #[error("{}: can't be run: {source}", path.display())]
    Unusable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The program can't opt in.
    #[error("{}: {refusal}", path.display())]
    Refused {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        refusal: OptInRefusal,
    },
    /// The program is set-user-id, for which the loader ignores `LD_PRELOAD`.
    #[error("{}: it is set-user-id, for which the loader ignores LD_PRELOAD: use --prctl", .0.display())]
    SetUserId(PathBuf),
    /// The program maps far more memory than it uses.
    #[error(
        "{}: it is built with {sanitizer}, which maps terabytes of empty memory; ksmd of Linux {kernel} looks at each \
         page of them, an hour and more ({JUMPS_OVER_HOLES} has the cure): build it without, or use --ranges none and \
         mark memory in the program", path.display()
    )]
    SparseGiant {
        /// Path of the file.
        path: PathBuf,
        /// Name of the sanitizer.
        sanitizer: &'static str,
        /// Release of the running kernel.
        kernel: String,
    },
}

/// The plan for starting a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchPlan {
    /// Path of the program's file.
    pub path: PathBuf,
    /// Kind of the program that runs; for a script, of its interpreter.
    pub program: ProgramKind,
    /// The way in which the program opts in.
    pub method: OptInMethod,
    /// Memory that is opted in.
    pub ranges: MarkedRanges,
    preload: Option<PathBuf>,
}

/// The program to start, and its environment.
#[derive(Debug, Clone)]
pub struct LaunchRequest<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// The options of the user.
    pub asked: OptInRequest,
    /// Path of the daemon's socket, for the library.
    pub socket: &'a Path,
    /// True to get the program's memory into huge pages. Where nobody folds them, they cost memory and hinder KSM.
    pub wants_huge_pages: bool,
}

/// A running program.
#[derive(Debug)]
pub struct StartedProgram {
    /// The child process, which [`super::wait`] reaps.
    pub child: Child,
}

/// Returns the version and the release of the running kernel.
pub(super) fn kernel() -> (Option<KernelVersion>, String) {
    let text = Root::host().text("proc/sys/kernel/osrelease").value().cloned().unwrap_or_default();
    (KernelVersion::parse(&text), text.trim().to_owned())
}

/// Returns the means of this host for opting in.
#[allow(unsafe_code, reason = "no safe wrapper knows this prctl yet")]
pub fn support(library: Option<&Path>) -> OptInSupport {
    // SAFETY: this prctl takes numbers and returns one.
    let known = unsafe { libc::prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0) } >= 0;
    let survives = kernel().0.is_some_and(|version| version >= SURVIVES_EXEC);
    OptInSupport { has_prctl: known && survives, has_library: library.is_some() }
}

/// Returns the path of libksmith.so: the one in `KSMITH_PRELOAD`, the one beside this program, or the package's.
pub fn library() -> Option<PathBuf> {
    const NAME: &str = "libksmith.so";
    let named = env::var_os("KSMITH_PRELOAD").filter(|named| !named.is_empty()).map(PathBuf::from);
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent);
    let candidates = [
        beside.map(|directory| directory.join(NAME)),
        beside.map(|directory| directory.join("../lib/ksmith").join(NAME)),
        beside.map(|directory| directory.join("../lib").join(NAME)),
        Some(Path::new("/usr/lib/ksmith").join(NAME)),
        Some(Path::new("/usr/local/lib").join(NAME)),
        Some(Path::new("/usr/lib").join(NAME)),
    ];
    match named {
        // A missing file that the user named is not replaced by another in silence.
        Some(named) => named.is_file().then_some(named),
        None => candidates.into_iter().flatten().find(|path| path.is_file()),
    }
}

impl LaunchRequest<'_> {
    /// Decides how to start the program.
    ///
    /// # Errors
    /// The program does not exist, or can't opt in as asked.
    pub fn plan(&self) -> Result<LaunchPlan, LaunchError> {
        let name = self.command.first().cloned().unwrap_or_default();
        let path = find(&name).ok_or(LaunchError::NotFound(name))?;
        let (real, head, program) = recognise(&path)?;
        let library = library();
        let refused = |refusal| LaunchError::Refused { path: path.clone(), refusal };
        let method = choose_method(self.asked, &program, support(library.as_deref())).map_err(refused)?;
        if method == OptInMethod::Preload && is_set_user_id(&real) {
            return Err(LaunchError::SetUserId(real));
        }
        let (version, kernel) = kernel();
        let is_cured = version.is_some_and(|version| version >= JUMPS_OVER_HOLES);
        if let Some(sanitizer) =
            names_a_sanitizer(&head).filter(|_| !is_cured && self.asked.ranges == MarkedRanges::All)
        {
            return Err(LaunchError::SparseGiant { path: real, sanitizer, kernel });
        }
        Ok(LaunchPlan { path, program, method, ranges: self.asked.ranges, preload: library })
    }

    /// Starts the program with the signal mask from before [`BlockedSignals`] blocked signals. The child stays in this
    /// process's group, so that a terminal treats both as one job.
    ///
    /// # Errors
    /// The kernel refuses to run the program.
    pub fn start(&self, plan: &LaunchPlan, signals: &BlockedSignals) -> Result<StartedProgram, LaunchError> {
        let mut command = Command::new(&plan.path);
        signals.release_in(&mut command);
        if let Some((name, arguments)) = self.command.split_first() {
            command.arg0(name).args(arguments);
        }
        match plan.method {
            OptInMethod::Prctl => opt_in_by_prctl(&mut command),
            OptInMethod::Preload => {
                let library = plan.preload.as_deref().unwrap_or(Path::new("libksmith.so"));
                let ranges = match plan.ranges {
                    MarkedRanges::All => "all",
                    MarkedRanges::Guided => "guided",
                    MarkedRanges::None => "none",
                };
                command
                    .env("LD_PRELOAD", preloaded(library, env::var_os("LD_PRELOAD").as_deref()))
                    .env("KSMITH_RANGES", ranges)
                    .env("KSMITH_SOCKET", self.socket);
                if self.wants_huge_pages {
                    command.env("KSMITH_HUGE_HINT", "1");
                }
            }
            OptInMethod::None => {}
        }
        if self.wants_huge_pages {
            command.env("GLIBC_TUNABLES", with_tunable(env::var_os("GLIBC_TUNABLES").as_deref()));
        }
        let child = command.spawn().map_err(|source| LaunchError::Unusable { path: plan.path.clone(), source })?;
        Ok(StartedProgram { child })
    }
}

/// Returns `GLIBC_TUNABLES` with malloc's use of huge pages added. The user's own value of that tunable wins.
fn with_tunable(others: Option<&OsStr>) -> OsString {
    let mut all = OsString::from(MALLOC_IN_HUGE_PAGES);
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// Returns the value of `LD_PRELOAD` with our library first.
fn preloaded(library: &Path, others: Option<&OsStr>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// Opts in between fork and exec, so that the program and its children inherit the opt-in.
#[allow(unsafe_code, reason = "std can't do it otherwise")]
fn opt_in_by_prctl(command: &mut Command) {
    let opt_in = || {
        // SAFETY: this prctl takes numbers, and prctl is async-signal-safe.
        match unsafe { libc::prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call; it neither allocates nor takes locks.
    unsafe { command.pre_exec(opt_in) };
}

/// Returns the file that `execvp` would run.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    let path = Path::new(name);
    if path.components().count() > 1 || path.is_absolute() || name.as_encoded_bytes().contains(&b'/') {
        return path.exists().then(|| path.to_owned());
    }
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let directories = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&directories).map(|directory| directory.join(path)).find(is_program)
}

/// Follows scripts to the program that runs. Returns its file, the beginning of that file, and its kind.
fn recognise(path: &Path) -> Result<(PathBuf, Vec<u8>, ProgramKind), LaunchError> {
    let mut path = path.to_owned();
    for _ in 0..=DEEPEST {
        let mut head = Vec::new();
        match File::open(&path).and_then(|file| file.take(HEAD).read_to_end(&mut head)) {
            Ok(_) => {}
            // A program that may be run but not read is of unknown kind.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok((path, Vec::new(), ProgramKind::Other));
            }
            Err(source) => return Err(LaunchError::Unusable { path, source }),
        }
        match ProgramKind::recognise(&head) {
            // The kernel does not search PATH; the program that `env` runs is judged at the next exec.
            ProgramKind::Script { interpreter } => path = interpreter.into(),
            program => return Ok((path, head, program)),
        }
    }
    Ok((path, Vec::new(), ProgramKind::Other))
}

fn is_set_user_id(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.permissions().mode() & 0o6000 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn plan(file: &Path, method: Option<OptInMethod>) -> Result<LaunchPlan, LaunchError> {
        let command = [file.as_os_str().to_owned()];
        let asked = OptInRequest { method, ranges: MarkedRanges::All, folds: false };
        LaunchRequest { command: &command, asked, socket: Path::new("/run/none"), wants_huge_pages: false }.plan()
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
        let (real, _, program) = recognise(&script).unwrap();
        assert_eq!((real.as_path(), program), (Path::new("/bin/sh"), ProgramKind::Dynamic));
        let endless = directory.path().join("endless");
        fs::write(&endless, format!("#!{}\n", endless.display())).unwrap();
        assert_eq!(recognise(&endless).unwrap().2, ProgramKind::Other);
    }

    #[test]
    fn what_is_not_there_is_said_so() {
        let error = plan(Path::new("/nonexistent/program"), None).unwrap_err();
        assert!(error.to_string().starts_with("there is no program \"/nonexistent/program\""), "{error}");
    }

    #[test]
    fn others_stay_preloaded_behind_ours() {
        let library = Path::new("/usr/lib/ksmith/libksmith.so");
        assert_eq!(preloaded(library, Some("a.so:b.so".as_ref())), "/usr/lib/ksmith/libksmith.so:a.so:b.so");
        assert_eq!(preloaded(library, Some("".as_ref())), "/usr/lib/ksmith/libksmith.so");
    }

    #[test]
    fn glibcs_other_settings_stay_and_take_precedence() {
        assert_eq!(with_tunable(None), "glibc.malloc.hugetlb=1");
        let own = "glibc.malloc.hugetlb=0";
        assert_eq!(with_tunable(Some(own.as_ref())), "glibc.malloc.hugetlb=1:glibc.malloc.hugetlb=0");
    }

    #[test]
    fn programs_are_found_as_the_shell_finds_them() {
        assert!(find("sh".as_ref()).is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find("".as_ref()), None);
        assert_eq!(find("no-such-program-anywhere".as_ref()), None);
    }
}
