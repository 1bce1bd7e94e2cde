//! Examples of each command. A test reads every one of them with the command line's own parser.

/// A command line with its description.
pub type Example = (&'static str, &'static str);

/// Returns the examples of the command with these words.
pub fn command_examples(words: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(command, _)| *command == words).map_or(&[], |(_, examples)| examples)
}

/// The words of each command, and its examples.
pub const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "",
        &[
            ("ksmith estimate --all", "Estimate what merging would save here. Nothing is switched on."),
            ("ksmith doctor", "Find out why KSM saves less than it could on this host. Nothing is changed."),
            ("ksmith status", "The settings of KSM, and what it saves."),
        ],
    ),
    (
        "status",
        &[
            ("ksmith status", "Settings and savings, once."),
            ("ksmith status --every 2", "The same every two seconds."),
            ("ksmith status --json", "The same for a program, in bytes and seconds."),
        ],
    ),
    (
        "guests",
        &[
            ("ksmith guests", "Each virtual machine, container and service."),
            ("ksmith guests web-1 web-2", "Two of them."),
            ("ksmith guests --by domain", "One row for each trust domain."),
        ],
    ),
    (
        "history",
        &[
            ("ksmith history", "What happened in the last two hours."),
            ("ksmith history --since 1d --decisions", "The last day, with what was decided and why."),
            ("ksmith history --since 7d --csv", "The last week, as a table for a spreadsheet."),
        ],
    ),
    (
        "report",
        &[
            ("ksmith report --since 7d -o week.html", "A report of the last week in one file."),
            ("ksmith report -o day.md", "The last day as Markdown."),
        ],
    ),
    (
        "top",
        &[
            ("ksmith top", "Savings, guests and decisions, live; q ends it."),
            ("ksmith top --root host-tree", "The same for a captured tree."),
        ],
    ),
    (
        "doctor",
        &[
            ("ksmith doctor", "Find out what is wrong on this host, with the remedy."),
            ("ksmith doctor web-1", "Find out why the memory of the guest web-1 does not merge."),
        ],
    ),
    (
        "estimate",
        &[
            ("ksmith estimate --all", "All mergeable memory, or all virtual machines if there is none."),
            ("ksmith estimate web-1 web-2", "Two guests, by name."),
            ("ksmith estimate --all --again 60", "The same, without pages that change within a minute."),
        ],
    ),
    (
        "overview",
        &[
            ("ksmith", "Show what KSM does here, what it could save, and which command comes next."),
            ("ksmith overview --json", "The same for a program."),
        ],
    ),
    (
        "setup",
        &[
            ("ksmith setup --dry-run", "Show what would be changed on this host."),
            ("ksmith setup", "Ask, hand KSM over, and start the daemon."),
            ("ksmith setup --undo", "Put everything back as it was."),
        ],
    ),
    (
        "demo",
        &[
            ("ksmith demo", "Four small guests, merged on this host's KSM."),
            ("ksmith demo --simulated", "The same on a simulated ksmd, without root."),
        ],
    ),
    (
        "daemon",
        &[
            ("systemctl start ksmith", "Control KSM as a service."),
            ("ksmith daemon", "Control KSM until Ctrl-C, and put everything back."),
        ],
    ),
    (
        "serve",
        &[
            ("systemctl start ksmith-serve.socket", "Serve the figures of the daemon on loopback, as a service."),
            ("ksmith serve", "The same until Ctrl-C."),
        ],
    ),
    (
        "metrics",
        &[
            ("ksmith metrics", "All metrics, as Prometheus reads them."),
            (
                "ksmith metrics -o /var/lib/prometheus/node-exporter/ksmith.prom",
                "The same into a file for node_exporter, replaced atomically.",
            ),
        ],
    ),
    (
        "run",
        &[
            ("ksmith run -- ./simulation input", "A program with mergeable memory, and what that saved."),
            ("ksmith run --ranges guided -- ./program", "Only memory that has equal pages elsewhere."),
            (
                "ksmith run --fold --ranges none -- ./solver input",
                "Without KSM: zeros in the program's huge pages are freed.",
            ),
        ],
    ),
    (
        "fold",
        &[
            ("ksmith fold --dry-run web1", "Show what would be freed of a guest. Nothing is split."),
            ("ksmith fold --all --threads 2", "Zero pages of all guests, two at once."),
        ],
    ),
    (
        "scan",
        &[
            ("ksmith scan", "Two passes over everything now, at full speed."),
            ("ksmith scan --max-cpu 20%", "The same with a fifth of a CPU."),
            ("ksmith scan --dry-run", "Show who would scan, and what would change first."),
        ],
    ),
    (
        "pause",
        &[
            ("ksmith pause 1h", "An hour without merging, such as for a measurement."),
            ("ksmith pause", "The same, until `ksmith resume`."),
        ],
    ),
    (
        "resume",
        &[
            ("ksmith resume", "Let the daemon's policy decide again."),
            ("ksmith resume --json", "The same for a program."),
        ],
    ),
    (
        "enable",
        &[
            ("ksmith enable", "Switch ksmd on by hand, with its present settings."),
            ("ksmith enable --dry-run", "Show what would be written. Nothing is."),
        ],
    ),
    (
        "disable",
        &[
            ("ksmith disable", "Stop ksmd. Merged pages stay merged."),
            ("ksmith disable --dry-run", "Show what would be written. Nothing is."),
        ],
    ),
    (
        "set",
        &[
            (
                "ksmith set pages_to_scan=1000 sleep_millisecs=10",
                "Two settings, in the order that the kernel needs.",
            ),
            ("ksmith set --dry-run max_page_sharing=512", "Show what would be written. Nothing is."),
        ],
    ),
    (
        "merge",
        &[
            ("ksmith merge off web-1", "Undo the merging of one running guest."),
            ("ksmith merge on web-1", "Allow it again."),
        ],
    ),
    (
        "balance",
        &[
            ("ksmith balance", "Show what each guest needs and could give, and the plan."),
            ("ksmith balance --dry-run", "Make a new plan, even if a daemon runs."),
        ],
    ),
    (
        "hold",
        &[
            ("ksmith hold web-1", "Leave the memory of this guest alone."),
            ("ksmith hold --release web-1", "Balance it again."),
        ],
    ),
    (
        "give",
        &[
            ("ksmith give web-1 512M", "Half a gibibyte more for this guest."),
            ("ksmith give --dry-run web-1 512M", "Show what it would have then."),
        ],
    ),
    (
        "take",
        &[
            ("ksmith take web-1 512M", "Half a gibibyte less."),
            ("ksmith take --dry-run web-1 512M", "Show what it would have then."),
        ],
    ),
    (
        "unmerge",
        &[
            ("ksmith unmerge --dry-run", "Check that there is enough memory to undo all merging."),
            ("ksmith unmerge", "Undo all merging."),
        ],
    ),
    (
        "sketch",
        &[
            ("ksmith sketch --new-secret fleet.key", "Make the secret that all hosts of a fleet share."),
            (
                "ksmith sketch --secret fleet.key --out host1.parquet",
                "Sketch the guests of this host for ksmith-fleet.",
            ),
        ],
    ),
    (
        "optin",
        &[
            ("ksmith optin build.service", "Let a systemd service merge, by MemoryKSM=yes."),
            ("ksmith optin --dry-run build.service", "Show the drop-in that this would write."),
        ],
    ),
    (
        "job report",
        &[
            (
                "ksmith job report ksm.json",
                "The ranks of a job that `mpirun -n 8 ksmith run --report ksm.json` started.",
            ),
            ("ksmith job report --line 4711", "A line with the sums of a Slurm job that runs on this node."),
        ],
    ),
    (
        "restore",
        &[
            ("ksmith restore", "Restore what a killed ksmith has changed."),
            ("ksmith restore --dry-run", "Show what would be restored. Nothing is."),
        ],
    ),
    (
        "lab run",
        &[
            ("ksmith lab run burst --policies profit,fixed:slow", "Two policies in one scenario, compared."),
            (
                "ksmith lab run burst churn --repeat 3 --out results",
                "Two scenarios, three times each, with a report.",
            ),
        ],
    ),
    (
        "sim",
        &[
            ("ksmith sim burst --policies profit,reference", "A scenario of the lab, on a simulated host."),
            ("ksmith sim hour --host 256G --policies profit", "An hour of a host with 256 GiB."),
        ],
    ),
    (
        "sim calibrate",
        &[
            ("ksmith sim calibrate", "Measure what ksmd's work costs on this host."),
            ("ksmith sim calibrate --out costs.toml", "The same into a file, for `ksmith sim --costs`."),
        ],
    ),
    (
        "lab list",
        &[
            ("ksmith lab list", "List the scenarios and policies that are here."),
            ("ksmith lab list --json", "The same for a program."),
        ],
    ),
    (
        "config check",
        &[
            ("ksmith config check", "Check that /etc/ksmith.toml is valid and fits this host."),
            ("ksmith config check new.toml", "Check a file that is to replace it."),
        ],
    ),
    (
        "config show",
        &[
            ("ksmith config show", "Each setting with its value; what the file leaves out is marked as default."),
            ("ksmith config show --json", "The same for a program."),
        ],
    ),
    (
        "schema",
        &[
            ("ksmith schema", "The commands that have a schema."),
            ("ksmith schema status", "The JSON Schema of what `ksmith status --json` prints."),
        ],
    ),
    (
        "completions",
        &[
            ("ksmith completions bash", "Print a completion script. Packages have installed it already."),
            ("ksmith completions zsh", "The same for zsh."),
        ],
    ),
];
