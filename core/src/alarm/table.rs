//! The table of alerts, by severity.
//!
//! From it follow the rules of Prometheus with their tests, the runbooks, the tables in `docs/how-to/alerts.md` and the
//! daemon's alarms. `KSMITH_WRITE=1 cargo test -p ksmith --test docs` writes the files.

use std::time::Duration;

use super::alert::{
    AlarmCause, AlarmOnset, AlertRow, AlertRuleTest, AlertRunbook, AlertSeverity, DaemonAlarm, FiringAlert,
    HostFault,
};
use crate::units::Bytes;

/// All alerts.
pub static ALERTS: &[AlertRow] = &[
    AlertRow {
        name: "KsmithExposureOverHeadroom",
        severity: AlertSeverity::Critical,
        condition: "ksmith_exposure_bytes > ksmith_headroom_bytes",
        minutes: 5,
        summary: "If all merged pages diverged, {{ $labels.instance }} would run out of memory.",
        description: "If every merged page were written to, the guests of {{ $labels.instance }} would need \
            {{ $value | humanize1024 }}B more. Available memory and free swap are less than that.",
        runbook: AlertRunbook {
            headline: "If all merged pages diverged, the host would run out of memory.",
            meaning: "The exposure is the memory that the host would need if every merged page were written to. \
                The headroom is the available memory and the free swap. While the exposure is larger, guests \
                that all diverge at once lead the host to the OOM killer. That happens when guests reboot, \
                update or encrypt their data at the same time.",
            commands: "ksmith status          # the line \"exposure\" has both figures and a warning\n\
                ksmith balance         # what guests have, could do without, and what is planned\n\
                ksmith guests --sort merged_bytes",
            elsewhere: Some(
                "On the page: the bar \"Exposure against headroom\", and its chart. In Prometheus: \
                    `ksmith_exposure_bytes - ksmith_headroom_bytes`.",
            ),
            steps: &[
                "Free memory on the host, or add swap. Both raise the headroom at once.",
                "Move a guest with much merged memory to another host.",
                "Let balance take memory from guests that can spare it: `[balance]` in the configuration \
                    ([balance](../balance.md)).",
                "Do not run `ksmith unmerge` now: it needs as much memory as merging saves. `ksmith unmerge \
                    --dry-run` says whether there is enough.",
                "Stop further merging with `ksmith pause`, or with `ksmith disable` where no daemon runs; what is \
                    merged stays merged.",
            ],
        },
        alarm: Some(DaemonAlarm {
            name: "exposure",
            message_id: "5f1c0f3b1d8e4c53a3a5f7a4c9f6e101",
            condition: "exposure over headroom for 30 s: if all merged and folded memory were written to, the \
                host would run out",
            onset: AlarmOnset::After(Duration::from_secs(30)),
            cause: |input| {
                let totals = &input.totals;
                let Some(headroom) = totals.headroom_bytes else { return AlarmCause::Unknown };
                AlarmCause::present_if(totals.is_overexposed(), || {
                    format!(
                        "{} of memory are saved by merging and folding, and the host has {} if guests write to \
                            all of it: give it swap or memory, or merge less (ksmith status)",
                        Bytes::from(totals.exposure_bytes),
                        Bytes::from(headroom)
                    )
                })
            },
            end: |input| {
                format!(
                    "the host has memory again if guests write to all merged and folded memory ({} are saved)",
                    Bytes::from(input.totals.exposure_bytes)
                )
            },
        }),
        rule_test: AlertRuleTest {
            name: "exposure over the headroom",
            series: &[
                (r#"ksmith_exposure_bytes{job="ksmith", instance="a:9180"}"#, "2000x20 500x20"),
                (r#"ksmith_headroom_bytes{job="ksmith", instance="a:9180"}"#, "1000x60"),
            ],
            quiet: 4,
            firing: 6,
            resolved: 23,
            alerts: &[FiringAlert { labels: &[("instance", "a:9180")], value: "1.953ki" }],
        },
        fault: Some(HostFault { host: "a", key: "headroomBytes", bad: "1", good: "null" }),
    },
    AlertRow {
        name: "KsmithDown",
        severity: AlertSeverity::Critical,
        condition: r#"ksmith_up == 0 or up{job="ksmith"} == 0"#,
        minutes: 2,
        summary: "ksmith on {{ $labels.instance }} does not answer.",
        description: "Either the daemon or `ksmith serve` has not answered for two minutes. A daemon that has \
            ended has put KSM's settings back; one that hangs leaves ksmd asleep.",
        runbook: AlertRunbook {
            headline: "The daemon or `ksmith serve` does not answer.",
            meaning: "`ksmith_up` is 0 if `ksmith serve` answers and the daemon does not. `up` is 0 if `ksmith \
                serve` itself can't be scraped. ksmd scans under a lease, so it sleeps while the daemon hangs. \
                Merged pages stay merged.",
            commands: "systemctl status ksmith ksmith-serve\n\
                journalctl -u ksmith -u ksmith-serve --since -15min\n\
                ksmith status                          # reads the kernel itself where no daemon answers\n\
                curl -sS http://127.0.0.1:9797/api/v1/status",
            elsewhere: None,
            steps: &[
                "Start the one that is down: `systemctl restart ksmith` or `systemctl restart ksmith-serve`.",
                "After SIGKILL or a crash, `ksmith restore --dry-run` says what is left to restore. The next \
                daemon does that too.",
                "If both run, look for what lies between: the firewall, the proxy, the address that `ksmith serve` \
                    listens at.",
                "If it happens again, report it with the journal of the time.",
            ],
        },
        alarm: None,
        rule_test: AlertRuleTest {
            name: "a daemon that does not answer, and a server that does not",
            series: &[
                (r#"ksmith_up{job="ksmith", instance="a:9180"}"#, "1x5 0x10 1x20"),
                (r#"up{job="ksmith", instance="a:9180"}"#, "1x40"),
                (r#"up{job="ksmith", instance="b:9180"}"#, "1x5 0x10 1x20"),
                (r#"up{job="node", instance="b:9100"}"#, "0x40"),
            ],
            quiet: 5,
            firing: 9,
            resolved: 20,
            alerts: &[
                FiringAlert { labels: &[("instance", "a:9180")], value: "0" },
                FiringAlert { labels: &[("instance", "b:9180")], value: "0" },
            ],
        },
        fault: None,
    },
    AlertRow {
        name: "KsmithTrustDomainBreached",
        severity: AlertSeverity::Critical,
        condition: "ksmith_domains_may_share_across == 1\n\
            and on (job, instance) ksmith_domain_mergeable_guests{domain!=\"\"} > 0",
        minutes: 2,
        summary: "Guests of different trust domains on {{ $labels.instance }} may share memory.",
        description: "Domains are configured, and pages of guests of different domains may be merged. A guest \
            can time a write and so learn whether another guest holds the same page.",
        runbook: AlertRunbook {
            headline: "Guests of different trust domains may share memory.",
            meaning: "The configuration assigns guests to trust domains, and their pages may be merged with \
                those of other domains. Merged pages are a side channel: a guest can time a write and so learn \
                whether another guest holds the same page ([domains](../domains.md)).",
            commands: "ksmith status                          # the line \"domains\" says which may share\n\
                ksmith guests --by domain              # as root: how much they do share now\n\
                ksmith doctor                          # findings `shared-across-domains` and `domains-refused`",
            elsewhere: None,
            steps: &[
                "Choose `mode = \"one\"` or `\"node\"` under `[domains]`, and reload: `systemctl reload ksmith`. \
                    Both need Linux 6.11.",
                "On an older kernel offer the memory of one domain only: `ksmith merge off --permanent GUEST` \
                    for guests of all others.",
                "What has already merged across domains stays merged until `ksmith unmerge`. First run `ksmith \
                unmerge --dry-run`.",
                "If the domains may share pages, you need no domains: remove their rules.",
            ],
        },
        alarm: Some(DaemonAlarm {
            name: "domains",
            message_id: "5f1c0f3b1d8e4c53a3a5f7a4c9f6e103",
            condition: "guests of different trust domains may share pages",
            onset: AlarmOnset::After(Duration::ZERO),
            cause: |input| match input.breach {
                Some(why) => AlarmCause::Present(format!("trust domains are to be kept apart, and are not: {why}")),
                None => AlarmCause::Absent,
            },
            end: |_| "trust domains are kept apart again".to_owned(),
        }),
        rule_test: AlertRuleTest {
            name: "trust domains that may share, a host that keeps them apart, and one without domains",
            series: &[
                (r#"ksmith_domains_may_share_across{job="ksmith", instance="a:9180"}"#, "1x10 0x10"),
                (r#"ksmith_domain_mergeable_guests{job="ksmith", instance="a:9180", domain="acme"}"#, "2x20"),
                (r#"ksmith_domains_may_share_across{job="ksmith", instance="b:9180"}"#, "0x20"),
                (r#"ksmith_domain_mergeable_guests{job="ksmith", instance="b:9180", domain="acme"}"#, "2x20"),
                (r#"ksmith_domains_may_share_across{job="ksmith", instance="c:9180"}"#, "1x20"),
                (r#"ksmith_domain_mergeable_guests{job="ksmith", instance="c:9180", domain=""}"#, "2x20"),
            ],
            quiet: 1,
            firing: 3,
            resolved: 12,
            alerts: &[FiringAlert { labels: &[("instance", "a:9180")], value: "1" }],
        },
        fault: Some(HostFault { host: "b", key: "mayShareAcross", bad: "true", good: "false" }),
    },
    AlertRow {
        name: "KsmithKsmdOverBudget",
        severity: AlertSeverity::Warning,
        condition: "avg_over_time(ksmith_ksmd_cpu_ratio[10m]) > 1.1 * ksmith_limit_cpu_ratio",
        minutes: 5,
        summary: "ksmd on {{ $labels.instance }} uses more CPU than [limits] max_cpu permits.",
        description: "ksmd used {{ $value | humanizePercentage }} of a CPU over the last ten minutes. That is \
            over a tenth more than the limit, so another program may set KSM, or the limit is not followed.",
        runbook: AlertRunbook {
            headline: "ksmd uses more CPU than the limit permits.",
            meaning: "`[limits] max_cpu` bounds the CPU time of ksmd. The daemon wakes ksmd for batches that fit \
                this bound. Over ten minutes ksmd used over a tenth more than that.",
            commands: "ksmith status                      # ksmd's CPU, the settings, the policy's reason\n\
                journalctl -u ksmith --since -1h   # settings that others changed are named\n\
                ksmith doctor                      # other programs that control KSM",
            elsewhere: Some(
                "On the page: the line \"ksmd's CPU\". In Prometheus: \
                    `ksmith_ksmd_cpu_ratio / ksmith_limit_cpu_ratio`.",
            ),
            steps: &[
                "Look for another program that sets KSM, such as ksmtuned or a script: \
                    `systemctl status ksmtuned ksm`. Stop it.",
                "If the kernel's advisor is on (`advisor_mode` is not `none`), switch it off: `ksmith set \
                    advisor_mode=none`.",
                "If pages are slow to compare, such as those on another node, lower `[limits] max_pages_to_scan`.",
                "If this use is acceptable, raise `[limits] max_cpu` and reload: `systemctl reload ksmith`.",
            ],
        },
        alarm: None,
        rule_test: AlertRuleTest {
            name: "ksmd over its budget, and a host without a limit",
            series: &[
                (r#"ksmith_ksmd_cpu_ratio{job="ksmith", instance="a:9180"}"#, "0.1x10 0.5x20 0x30"),
                (r#"ksmith_limit_cpu_ratio{job="ksmith", instance="a:9180"}"#, "0.2x60"),
                (r#"ksmith_ksmd_cpu_ratio{job="ksmith", instance="b:9180"}"#, "1x60"),
            ],
            quiet: 9,
            firing: 28,
            resolved: 50,
            alerts: &[FiringAlert { labels: &[("instance", "a:9180")], value: "50%" }],
        },
        fault: Some(HostFault { host: "b", key: "cpuPercent", bad: "50", good: "null" }),
    },
    AlertRow {
        name: "KsmithProfitNegative",
        severity: AlertSeverity::Warning,
        condition: "ksmith_profit_bytes < 0",
        minutes: 60,
        summary: "For an hour KSM on {{ $labels.instance }} has cost more memory than it saved.",
        description: "KSM's own metadata takes more memory than merging saves: the profit is \
            {{ $value | humanize1024 }}B. The guests have little in common, or ksmd has not found it.",
        runbook: AlertRunbook {
            headline: "For an hour KSM has cost more memory than it saved.",
            meaning: "KSM keeps 64 bytes of metadata for each page that it tracks. If few pages have an equal one, \
                this is more than merging saves. A negative profit is usual for some minutes after many guests \
                start; after an hour it is a loss.",
            commands: "ksmith status                         # saved, metadata, profit\n\
                ksmith guests --sort profit_bytes     # guests at a loss are at the end\n\
                ksmith doctor GUEST                   # why its memory does not merge\n\
                ksmith estimate                       # what merging could save here at all",
            elsewhere: Some(
                "On the page: sort the guests by \"Profit\". In Prometheus: `ksmith_guest_profit_bytes < 0`.",
            ),
            steps: &[
                "Switch merging off for guests that only cost: `ksmith merge off GUEST`, or `[guests] prune` for \
                    all of them.",
                "If `ksmith estimate` finds little on the whole host, KSM is not worth it there: `ksmith unmerge`, \
                    and stop the daemon.",
                "If the estimate finds much, ksmd has not reached it: look at the policy's reason, and at \
                `[limits]`.",
            ],
        },
        alarm: Some(DaemonAlarm {
            name: "profit",
            message_id: "5f1c0f3b1d8e4c53a3a5f7a4c9f6e102",
            condition: "KSM's metadata has taken more than merging saves for `profit_minutes`",
            onset: AlarmOnset::ProfitMinutes,
            cause: |input| {
                AlarmCause::present_if(input.totals.profit_bytes < 0, || {
                    format!(
                        "merging saves {} and its metadata takes {}: find the guests that only cost (ksmith \
                            guests --sort profit_bytes), or switch KSM off",
                        Bytes::from(input.totals.saved_bytes),
                        Bytes::from(input.totals.overhead_bytes)
                    )
                })
            },
            end: |input| format!("merging saves {} more than it costs", Bytes::from(input.totals.profit_bytes)),
        }),
        rule_test: AlertRuleTest {
            name: "profit negative for an hour",
            series: &[(r#"ksmith_profit_bytes{job="ksmith", instance="a:9180"}"#, "-1024x80 1024x20")],
            quiet: 59,
            firing: 61,
            resolved: 82,
            alerts: &[FiringAlert { labels: &[("instance", "a:9180")], value: "-1ki" }],
        },
        fault: Some(HostFault { host: "a", key: "profitBytes", bad: "-1", good: "null" }),
    },
    AlertRow {
        name: "KsmithBlind",
        severity: AlertSeverity::Warning,
        condition: "ksmith_source_healthy == 0",
        minutes: 5,
        summary: "ksmith on {{ $labels.instance }} can't read {{ $labels.source }}.",
        description: "{{ $labels.source }} has not been readable for five minutes. The controller decides \
            without these figures.",
        runbook: AlertRunbook {
            headline: "A source of figures can't be read.",
            meaning: "`ksmith_source_healthy` is 0 for a source that exists but can't be read, or that ksmith does \
                not understand. Figures from that source are missing; the controller continues with the others. A \
                file that this kernel lacks does not count.",
            commands: "ksmith status                          # \"note\" names each source and what is wrong\n\
                curl -sS http://127.0.0.1:9797/metrics | grep ksmith_source_healthy\n\
                journalctl -u ksmith --since -1h",
            elsewhere: None,
            steps: &[
                "\"permission denied\": the daemon lacks a right. See the unit's drop-ins in \
                    [packaging](../../../packaging/README.md).",
                "\"malformed\": the kernel's text is unknown to this release. Report the file's content and `uname \
                -r`.",
                "The source \"guests\" or \"balance\": the daemon does not answer such requests. Restart the \
                    daemon, and report the fault.",
            ],
        },
        alarm: None,
        rule_test: AlertRuleTest {
            name: "a source that can't be read",
            series: &[
                (r#"ksmith_source_healthy{job="ksmith", instance="a:9180", source="meminfo"}"#, "0x10 1x20"),
                (r#"ksmith_source_healthy{job="ksmith", instance="a:9180", source="vmstat"}"#, "1x30"),
            ],
            quiet: 4,
            firing: 6,
            resolved: 13,
            alerts: &[FiringAlert { labels: &[("instance", "a:9180"), ("source", "meminfo")], value: "0" }],
        },
        fault: Some(HostFault { host: "b", key: "blindSource", bad: r#""/proc/vmstat""#, good: "null" }),
    },
    AlertRow {
        name: "KsmithGuestUnbalanced",
        severity: AlertSeverity::Warning,
        condition: "abs(ksmith_balanced_guest_to_bytes - ksmith_balanced_guest_given_bytes) \
            > 0.1 * ksmith_balanced_guest_whole_bytes\n\
            or ksmith_balanced_guest_giving_seconds > 600",
        minutes: 10,
        summary: "Guest {{ $labels.guest }} on {{ $labels.instance }} does not reach the memory that balance plans \
            for it.",
        description: "For ten minutes the guest has been far from the memory planned for it, or on its way there. \
            Its balloon may be stuck, or its own kernel may need what it has.",
        runbook: AlertRunbook {
            headline: "A guest does not reach the memory that balance plans for it.",
            meaning: "Balance asks a guest to give memory, or gives it some back. For ten minutes the guest has \
                been over a tenth of its memory away from the plan, or on its way to less memory for another \
                ten. Meanwhile the pool's other guests have to give more.",
            commands: "ksmith balance                         # given, plan, reason and trouble of each guest\n\
                ksmith doctor GUEST",
            elsewhere: Some(
                "On the page: the table under \"Balance\". In Prometheus: \
                    `ksmith_balanced_guest_to_bytes - ksmith_balanced_guest_given_bytes`.",
            ),
            steps: &[
                "Check inside the guest whether its balloon driver is loaded (`virtio_balloon`), and whether \
                    memory is short.",
                "Leave the guest alone until that is settled: `ksmith hold GUEST`.",
                "If it suffers, give it memory back: `ksmith give GUEST 1G`.",
                "Give it a floor or another class permanently: `[[balance.rule]]` ([balance](../balance.md)).",
            ],
        },
        alarm: None,
        rule_test: AlertRuleTest {
            name: "guests that do not get to their plan, and two that do",
            series: &[
                (
                    r#"ksmith_balanced_guest_given_bytes{job="ksmith", instance="a:9180", guest="far"}"#,
                    "4000x20 2000x20",
                ),
                (r#"ksmith_balanced_guest_whole_bytes{job="ksmith", instance="a:9180", guest="far"}"#, "4000x40"),
                (r#"ksmith_balanced_guest_to_bytes{job="ksmith", instance="a:9180", guest="far"}"#, "2000x40"),
                (
                    r#"ksmith_balanced_guest_giving_seconds{job="ksmith", instance="a:9180", guest="slow"}"#,
                    "500+60x20 0x20",
                ),
                (r#"ksmith_balanced_guest_given_bytes{job="ksmith", instance="a:9180", guest="near"}"#, "3900x40"),
                (r#"ksmith_balanced_guest_whole_bytes{job="ksmith", instance="a:9180", guest="near"}"#, "4000x40"),
                (r#"ksmith_balanced_guest_to_bytes{job="ksmith", instance="a:9180", guest="near"}"#, "3800x40"),
                (
                    r#"ksmith_balanced_guest_given_bytes{job="ksmith", instance="a:9180", guest="unplanned"}"#,
                    "1000x40",
                ),
                (
                    r#"ksmith_balanced_guest_whole_bytes{job="ksmith", instance="a:9180", guest="unplanned"}"#,
                    "4000x40",
                ),
            ],
            quiet: 9,
            firing: 14,
            resolved: 25,
            alerts: &[
                FiringAlert { labels: &[("instance", "a:9180"), ("guest", "far")], value: "2000" },
                FiringAlert { labels: &[("instance", "a:9180"), ("guest", "slow")], value: "1340" },
            ],
        },
        fault: Some(HostFault { host: "a", key: "unbalanced", bad: "true", good: "false" }),
    },
    AlertRow {
        name: "KsmithMemoryStaysMergeable",
        severity: AlertSeverity::Warning,
        condition: "ksmith_guest_has_remaining_mergeable == 1",
        minutes: 10,
        summary: "Memory of guest {{ $labels.guest }} on {{ $labels.instance }} merges although the guest was \
            switched off.",
        description: "The guest's RAM is no longer offered to merging, but its firmware and devices still are, and \
            may merge across trust domains.",
        runbook: AlertRunbook {
            headline: "Memory of a guest that was switched off can still merge.",
            meaning: "The guest's RAM is not offered to merging any more. QEMU's firmware, option ROMs and display \
                memory still are, and may merge across trust domains. QEMU can't switch these while it runs \
                ([domains](../domains.md)).",
            commands: "ksmith guests --json | jq '.guests[] | select(.has_remaining_mergeable) | .name'\n\
                ksmith doctor                          # finding `firmware-mergeable`",
            elsewhere: None,
            steps: &[
                "Start the guest with `-machine mem-merge=off`, for libvirt \
                    `<memoryBacking><nosharepages/></memoryBacking>`.",
                "`ksmith merge off --permanent GUEST` writes that for guests of libvirt; it applies from their \
                    next start on.",
                "If firmware may be shared, tolerate it: `[domains] remaining_mergeable_mib`.",
            ],
        },
        alarm: None,
        rule_test: AlertRuleTest {
            name: "memory that stays mergeable",
            series: &[(
                r#"ksmith_guest_has_remaining_mergeable{job="ksmith", instance="a:9180", guest="web"}"#,
                "1x15 0x10",
            )],
            quiet: 9,
            firing: 11,
            resolved: 18,
            alerts: &[FiringAlert { labels: &[("instance", "a:9180"), ("guest", "web")], value: "1" }],
        },
        fault: Some(HostFault { host: "a", key: "staysMergeable", bad: "true", good: "false" }),
    },
    AlertRow {
        name: "KsmithControllerRestarted",
        severity: AlertSeverity::Info,
        condition: "resets(ksmith_controller_uptime_seconds_total[15m]) > 0",
        minutes: 0,
        summary: "The ksmith daemon on {{ $labels.instance }} was restarted.",
        description: "Restarts of the daemon in the last 15 minutes: {{ $value }}. An update causes one; more \
            are a fault.",
        runbook: AlertRunbook {
            headline: "The daemon was restarted.",
            meaning: "The daemon restarted within the last 15 minutes. An update or an operator does that once. \
                More often is a fault: each end restores all settings, and each start begins measuring again.",
            commands: "systemctl status ksmith                # since when, and how the last one ended\n\
                journalctl -u ksmith --since -1h\n\
                coredumpctl list ksmith\n\
                ksmith history --since 1h              # starts and ends are among the events",
            elsewhere: None,
            steps: &[
                "If an operator or an update did it, do nothing: the alert resolves by itself.",
                "If the journal shows a refused configuration, correct it: `ksmith config check`.",
                "If the kernel killed it for memory, look at `MemoryMax=` of its unit and at the host's memory.",
                "If it crashed, report it with the journal and the core dump.",
            ],
        },
        alarm: None,
        rule_test: AlertRuleTest {
            name: "a daemon that was restarted",
            series: &[(
                r#"ksmith_controller_uptime_seconds_total{job="ksmith", instance="a:9180"}"#,
                "1000+60x5 10+60x40",
            )],
            quiet: 5,
            firing: 7,
            resolved: 25,
            alerts: &[FiringAlert { labels: &[("instance", "a:9180")], value: "1" }],
        },
        fault: None,
    },
];
