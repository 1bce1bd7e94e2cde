//! The checks: what runs in a guest, and what must come of it on each kernel.

use ksmith_core::decide::POLICIES;
use ksmith_core::field::KernelVersion;
use serde_json::Value;

use crate::guest::{CheckOutput, REPRODUCERS};

/// Pages of known content in each guest of a check.
const PAGES: u64 = 2048;

/// Exit codes of `examples/kernel`.
const REPRODUCED: i32 = 0;
const NOT_REPRODUCED: i32 = 1;
const NOT_APPLICABLE: i32 = 4;

/// Exit code of a command that is not possible here.
const IMPOSSIBLE: i32 = 3;

/// A command in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestCheck {
    pub name: String,
    pub script: String,
}

/// The version of a kernel with KSM, on which the outcomes depend; `None` if it has no KSM.
pub type Ksm = Option<KernelVersion>;

fn check(name: impl Into<String>, script: impl Into<String>) -> GuestCheck {
    GuestCheck { name: name.into(), script: script.into() }
}

/// All checks.
pub fn all() -> Vec<GuestCheck> {
    let mut checks = vec![
        check("status", "ksmith status && echo @@json && ksmith status --json"),
        check("doctor", "ksmith doctor"),
        scan(),
        check("demo", "ksmith demo --json"),
    ];
    checks.extend(POLICIES.iter().map(|policy| daemon(policy.name)));
    checks.extend([domains(), nodes(), run(), preload(), restore()]);
    checks.extend(REPRODUCERS.iter().map(|name| check(*name, format!("/repro/{name}"))));
    checks
}

/// The checks of these names.
pub fn named(names: &[&str]) -> Vec<GuestCheck> {
    all().into_iter().filter(|check| names.contains(&check.name.as_str())).collect()
}

fn scan() -> GuestCheck {
    let script =
        format!("guest a equal:1:{PAGES} unique:512\nguest b equal:1:{PAGES} unique:512\nksmith scan --json");
    check("scan", script)
}

/// Policies that merge equal memory wherever it is offered. The others go by short memory or many guests.
const MERGING: [&str; 4] = ["profit", "advisor", "fixed", "scan"];

/// The daemon with a policy.
fn daemon(policy: &str) -> GuestCheck {
    let does = match policy {
        policy if MERGING.contains(&policy) => format!("within 600 merged {}\ndoes=merges", PAGES * 9 / 10),
        "off" => {
            "if [ \"$(cat $KSM/run)\" = 1 ]; then echo 'ksmd runs'; exit 94; fi\ndoes='ksmd stands'".to_owned()
        }
        _ => "does=decides".to_owned(),
    };
    // Without settings of its own `fixed` changes nothing.
    let settings = if policy == "fixed" { "[policy.fixed]\npreset = \"kernel-default\"" } else { "" };
    let script = format!(
        "cat > /tmp/config <<'EOF'\n[policy]\nkind = \"{policy}\"\n{settings}\nEOF\n\
         guest a equal:1:{PAGES} unique:512\nguest b equal:1:{PAGES} unique:512\nstart_daemon --config /tmp/config\n\
         within 600 has_status '\"policy\": *\"{policy}\"'\n{does}\n\
         state=$(ksmith status --json | grep '\"state\"' | head -n 1 | cut -d'\"' -f4)\n\
         end_daemon\necho \"$does ($state); settings restored\""
    );
    check(format!("daemon {policy}"), script)
}

/// Two guests of the admitted domain, and again and again a new guest of another with equal pages, which must not merge.
fn domains() -> GuestCheck {
    let script = format!(
        r#"cat > /tmp/config <<'EOF'
[policy]
kind = "fixed"
[policy.fixed]
settings = {{ pages_to_scan = 20000, sleep_millisecs = 10, run = 1 }}
[domains]
mode = "one"
admit = "a"
[[domains.rule]]
domain = "a"
name = "ksmith"
[[domains.rule]]
domain = "b"
name = "foreign"
EOF
guest a equal:1:{PAGES}
guest b equal:1:{PAGES}
start_daemon --config /tmp/config
within 600 merged {}
for round in 1 2 3 4 5; do
    GUEST=foreign guest c$round equal:1:{PAGES}
    eval "pid=\$c$round"
    within 600 has_status '"state": *"guarded"'
    pages=$(cat /proc/$pid/ksm_merging_pages)
    if [ "$pages" != 0 ]; then echo "$pages pages of a guest outside merged"; exit 97; fi
    kill -KILL $pid
    within 600 not_guarded
done
end_daemon
echo "no page of 5 new guests outside merged"
"#,
        PAGES * 9 / 10
    );
    check("domains one", script)
}

/// Two guests on each of two nodes, all with equal pages, under a daemon that sets `merge_across_nodes` itself: each node's guests
/// share with each other only. A fifth guest that may lie on both nodes then parks ksmd as long as it runs, and merges no page.
fn nodes() -> GuestCheck {
    let script = format!(
        r#"if [ ! -e $KSM ]; then exec ksmith daemon; fi
if [ ! -e /sys/devices/system/node/node1 ]; then echo "no second node"; exit 93; fi
cat > /tmp/config <<'EOF'
[daemon]
merge_across_nodes = false
[policy]
kind = "fixed"
[policy.fixed]
settings = {{ pages_to_scan = 20000, sleep_millisecs = 10, run = 1 }}
[domains]
mode = "node"
nodes = {{ a = 0, b = 1 }}
[[domains.rule]]
domain = "a"
cgroup = "/a"
[[domains.rule]]
domain = "b"
cgroup = "/b"
EOF
mkdir /tmp/cgroup
mount -t cgroup2 own /tmp/cgroup
echo +cpuset > /tmp/cgroup/cgroup.subtree_control || exit 92
mkdir /tmp/cgroup/a /tmp/cgroup/b
echo 0 > /tmp/cgroup/a/cpuset.mems
echo 1 > /tmp/cgroup/b/cpuset.mems
echo 2 > $KSM/run
echo 0 > $KSM/run
for node in a b; do
    for number in 1 2; do CGROUP=/tmp/cgroup/$node guest $node$number equal:1:{PAGES}; done
done
# Each node keeps one frame of each page, and saves one. Across nodes one frame of all four would stay.
ksmith estimate --json $a1 $a2 $b1 $b2 > /tmp/estimate || exit
inside=$(sed -n 's/.*"within_nodes_saved_bytes": *\([0-9]*\).*/\1/p' /tmp/estimate)
if [ $((inside / 4096)) -lt {} ] || [ $((inside / 4096)) -gt {} ]; then cat /tmp/estimate; exit 91; fi
ksmith estimate $a1 $a2 $b1 $b2 > /tmp/estimate || exit
grep -q 'Merging within NUMA nodes alone' /tmp/estimate || {{ cat /tmp/estimate; exit 90; }}
are_apart() {{
    pages=$(cat $KSM/pages_sharing)
    if [ "$pages" -gt {} ]; then echo "$pages pages are saved"; exit 97; fi
}}
are_merged() {{
    within 600 merged {}
    passes=$(($(cat $KSM/full_scans) + 3))
    within 600 passed $passes
    are_apart
}}
start_daemon --config /tmp/config
if [ "$(cat $KSM/merge_across_nodes)" != 0 ]; then echo "ksmd merges across nodes"; exit 96; fi
are_merged
CGROUP=/tmp/cgroup guest wide equal:1:{PAGES}
within 600 has_status '"state": *"guarded"'
for look in 1 2 3; do
    sleep 1
    has_status '"state": *"guarded"' || exit 95
    merging=$(cat /proc/$wide/ksm_merging_pages)
    if [ "$merging" != 0 ]; then echo "$merging pages of a guest on both nodes merged"; exit 94; fi
done
kill -KILL $wide
within 600 not_guarded
are_merged
# merge_across_nodes is put back once no page is merged.
kill -KILL $a1 $a2 $b1 $b2
within 600 eval '[ "$(cat $KSM/pages_shared)" = 0 ]'
end_daemon
echo "no page shared across nodes: $pages of {} saved"
"#,
        PAGES * 19 / 10,
        PAGES * 21 / 10,
        2 * PAGES,
        PAGES * 19 / 10,
        3 * PAGES
    );
    check("domains node", script)
}

/// A program that knows nothing of KSM, which has its memory marked.
const MARKED: &str = r#"within 600 grep -q ready /tmp/equal.out
marked=$(grep -c '^VmFlags:.* mg' /proc/$(pidof equal)/smaps)
echo go >&4
exec 4>&-
wait $program
code=$?
cat /tmp/equal.err
if [ $code != 0 ]; then exit $code; fi
grep -q checked /tmp/equal.out || exit 95
marks="memory marked"
if [ "$marked" = 0 ]; then
    marks="no memory marked"
    if [ -e $KSM ]; then echo "$marks"; exit 96; fi
fi
"#;

fn run() -> GuestCheck {
    let told = r#"echo "$marks, and unharmed, by $(sed -n 's/.*"method": *"\([a-z]*\)".*/\1/p' /tmp/job)""#;
    check("run", marked("ksmith run --quiet --scan never --report /tmp/job --", told))
}

fn preload() -> GuestCheck {
    let told = r#"echo "$marks, and unharmed""#;
    check("preload", marked("env LD_PRELOAD=/usr/lib/ksmith/libksmith.so", told))
}

/// Starts the program by this command and looks at its memory.
fn marked(command: &str, told: &str) -> String {
    format!(
        "mkfifo /tmp/equal.in\n: > /tmp/equal.out\n\
         {command} /bin/equal 1 < /tmp/equal.in > /tmp/equal.out 2> /tmp/equal.err &\n\
         program=$!\nexec 4> /tmp/equal.in\n{MARKED}{told}"
    )
}

/// A daemon that is killed, and the settings that it leaves.
fn restore() -> GuestCheck {
    let script = format!(
        "guest a equal:1:{PAGES}\nstart_daemon --policy profit\nwithin 600 changed\nkill -KILL $daemon\nwait $daemon\n\
         ksmith restore || exit\nsame_settings\necho \"settings restored\""
    );
    check("restore", script)
}

/// The outcome of a check for the table, or what is wrong with it.
pub fn judge(name: &str, ksm: Ksm, said: &CheckOutput) -> Result<String, String> {
    let wrong = || format!("{name} ended with {} and said:\n{}", said.code, said.text);
    let text = said.text.trim();
    let last = || text.lines().last().unwrap_or_default().to_owned();
    let fine = |outcome: String| if said.code == 0 { Ok(outcome) } else { Err(wrong()) };
    if REPRODUCERS.contains(&name) {
        return reproduced(name, ksm).contains(&said.code).then(last).ok_or_else(wrong);
    }
    let Some(version) = ksm else { return without_ksm(name, said).ok_or_else(wrong) };
    match name {
        "status" => fine(lacks(text).ok_or_else(wrong)?),
        // With a problem found its exit code is 6.
        "doctor" => {
            if matches!(said.code, 0 | 6) && text.contains("[switched-off]") {
                Ok(findings(text))
            } else {
                Err(wrong())
            }
        }
        "scan" => {
            // Warnings come first: both streams are one here.
            let report = text.find('{').and_then(|at| text.get(at..)).ok_or_else(wrong)?;
            let report: Value = serde_json::from_str(report).map_err(|_| wrong())?;
            let saved = report["saved_bytes"].as_u64().unwrap_or(0) / 4096;
            if saved >= PAGES * 95 / 100 { fine("all equal pages merged".to_owned()) } else { Err(wrong()) }
        }
        "demo" => demo(said).ok_or_else(wrong),
        "run" => {
            let method = if version < KernelVersion::new(6, 7) { "preload" } else { "prctl" };
            if last().ends_with(&format!("by {method}")) { fine(last()) } else { Err(wrong()) }
        }
        // Without an advisor of the kernel's it says so, and takes the kernel's default settings.
        "daemon advisor" if version < KernelVersion::new(6, 8) => {
            if last().contains("(fallback)") {
                fine(last())
            } else {
                Err(wrong())
            }
        }
        "domains one" | "domains node" if version < KernelVersion::new(6, 11) => {
            let is_said = said.code == IMPOSSIBLE && text.contains(&format!("can't be kept on Linux {version}"));
            is_said.then(|| format!("refused (exit code {IMPOSSIBLE}): needs Linux 6.11")).ok_or_else(wrong)
        }
        _ => fine(last()),
    }
}

/// The exit codes that a reproducer may have.
fn reproduced(name: &str, ksm: Ksm) -> &'static [i32] {
    let Some(version) = ksm else { return &[NOT_APPLICABLE] };
    let is_from = |major, minor| version >= KernelVersion::new(major, minor);
    match name {
        "first_visit" if is_from(6, 11) => &[NOT_REPRODUCED],
        "split_search" if !is_from(6, 6) => &[NOT_APPLICABLE],
        "uncounted_zeros" | "split_search" if !is_from(6, 12) => &[NOT_REPRODUCED],
        "smart_scan" if !is_from(6, 7) => &[NOT_APPLICABLE],
        "zero_pages" if !is_from(6, 6) => &[NOT_APPLICABLE],
        "zero_pages" if is_from(6, 18) => &[NOT_REPRODUCED],
        // Later releases of these versions have the cure.
        "zero_pages" => &[REPRODUCED, NOT_REPRODUCED],
        _ => &[REPRODUCED],
    }
}

/// On a kernel without KSM each command says so and changes nothing; the demo is simulated, and programs run as they are.
fn without_ksm(name: &str, said: &CheckOutput) -> Option<String> {
    let says = |words: &str| said.text.contains(words);
    match name {
        "demo" => {
            let is_told = says("\"mode\": \"simulated\"") && says("SIMULATED (this kernel has no KSM)");
            (said.code == 0 && is_told).then(|| "simulated, and says so".to_owned())
        }
        "status" => {
            (said.code == 0 && says("this kernel has none")).then(|| "says that there is no KSM".to_owned())
        }
        "doctor" => (said.code == 6 && says("[no-ksm]")).then(|| "says that there is no KSM".to_owned()),
        "run" => {
            let is_told = says("this kernel has no KSM") && says("no memory marked, and unharmed");
            (said.code == 0 && is_told).then(|| "program unharmed; says that there is no KSM".to_owned())
        }
        "preload" => {
            (said.code == 0 && says("no memory marked, and unharmed")).then(|| "program unharmed".to_owned())
        }
        _ => (said.code == IMPOSSIBLE && says("this kernel has no KSM"))
            .then(|| format!("refused (exit code {IMPOSSIBLE}): no KSM")),
    }
}

/// The files of KSM that this kernel lacks, by the JSON of the status.
fn lacks(text: &str) -> Option<String> {
    let json = text.split_once("@@json")?.1;
    let status: Value = serde_json::from_str(json).ok()?;
    let absent = ksmith_core::kernel::FIELDS.iter().map(|field| field.name).filter(|name| status[name].is_null());
    let absent: Vec<&str> = absent.collect();
    Some(if absent.is_empty() { "has all files".to_owned() } else { format!("lacks {}", absent.join(", ")) })
}

fn findings(text: &str) -> String {
    let count = text
        .lines()
        .filter(|line| ["PROBLEM", "WARNING", "NOTE"].iter().any(|word| line.starts_with(word)))
        .count();
    format!("{count} findings")
}

/// At least 95 % saved, or an exit code and words that say what was missed.
fn demo(said: &CheckOutput) -> Option<String> {
    let json = &said.text[said.text.find("\n{").map_or(0, |at| at + 1)..];
    let report: Value = serde_json::from_str(json.trim()).ok()?;
    let share = 100.0 * report["saved_bytes"].as_f64()? / report["mergeable_bytes"].as_f64()?;
    let is_whole = report["restored"] == true && report["wrong_pages"] == 0 && report["mode"] == "live";
    match (said.code, report["missed"].as_str()) {
        (0, None) if share >= 95.0 && is_whole => Some(format!("saves {share:.1} %")),
        (1, Some(missed)) if share < 95.0 && is_whole => Some(format!("saves {share:.1} %, exit code 1: {missed}")),
        _ => None,
    }
}
