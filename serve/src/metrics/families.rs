//! Metric families with their samples, built from the models.

use std::cmp::Reverse;

use ksmith_core::field::FigureDescription;
use ksmith_core::figures::{
    self, BALANCE, BALANCED_GUEST, CONTROLLER, DOMAIN, EFFICIENCY, FigureScalar, GUEST, HISTORY, METRIC_LABELS,
    ModelFigure, POOL, SKETCH,
};
use ksmith_core::guest::Guest;
use ksmith_core::model::{GuestsReport, StatusReport};
use ksmith_core::printable::OneLine;

use super::MetricsSnapshot;
use super::name::{self, SampleNumber};

/// Labels of a sample.
pub(super) type Labels = Vec<(&'static str, String)>;

/// The type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FamilyKind {
    Gauge,
    Counter,
    /// A constant 1 with labels as its value.
    Info,
}

/// A metric family: all samples of one name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MetricFamily {
    /// The name without unit, `_total` and `_info`.
    pub(super) stem: String,
    pub(super) help: String,
    pub(super) unit: Option<&'static str>,
    pub(super) kind: FamilyKind,
    pub(super) samples: Vec<(Labels, SampleNumber)>,
}

/// Limit of a label value's characters. Guests choose their own names.
const LONGEST_LABEL: usize = 200;

/// Returns all families that have a sample.
pub(super) fn all(figures: &MetricsSnapshot<'_>) -> Vec<MetricFamily> {
    let mut all = FamilyList::default();
    all.info("ksmith_build", "Version of ksmith.", vec![("version", env!("CARGO_PKG_VERSION").to_owned())]);
    all.gauge("ksmith_up", "1 if a daemon of ksmith answers.", vec![(vec![], flag(figures.is_up))]);
    all.sources(figures);
    if let Some(status) = figures.status {
        all.status(status);
    }
    if let Some(report) = figures.guests {
        all.table("", &[], EFFICIENCY, &[(vec![], report)]);
        all.guests(report, figures.most_guests);
    }
    if let Some(report) = figures.balance {
        all.table("balance_", &["pool"], POOL, &[(vec![], report)]);
        let rows = report.guests.iter().map(|row| {
            let labels = vec![
                ("guest", label(&row.guest.name)),
                ("class", label(&row.guest.class.name)),
                ("key", label(&row.guest.key)),
            ];
            (labels, row)
        });
        all.table("balanced_guest_", &[], BALANCED_GUEST, &rows.collect::<Vec<_>>());
    }
    all.0
}

#[derive(Debug, Default)]
struct FamilyList(Vec<MetricFamily>);

impl FamilyList {
    fn add(&mut self, family: MetricFamily) {
        let labels = || family.samples.iter().flat_map(|(labels, _)| labels);
        // An operator's label of that name would be taken for it.
        debug_assert!(
            labels().all(|(name, _)| METRIC_LABELS.contains(name)),
            "{}: {:?}",
            family.stem,
            labels().next()
        );
        if !family.samples.is_empty() {
            self.0.push(family);
        }
    }

    fn gauge(&mut self, stem: &str, help: &str, samples: Vec<(Labels, SampleNumber)>) {
        self.add(MetricFamily {
            stem: stem.to_owned(),
            help: help.to_owned(),
            unit: None,
            kind: FamilyKind::Gauge,
            samples,
        });
    }

    fn info(&mut self, stem: &str, help: &str, labels: Labels) {
        let samples = vec![(labels, SampleNumber::Unsigned(1))];
        self.add(MetricFamily {
            stem: stem.to_owned(),
            help: help.to_owned(),
            unit: None,
            kind: FamilyKind::Info,
            samples,
        });
    }

    /// Adds a family for a figure with its values.
    fn figure(
        &mut self,
        prefix: &str,
        own_groups: &[&str],
        field: &FigureDescription,
        values: Vec<(Labels, FigureScalar)>,
    ) {
        let Some(naming) = name::derive_metric(prefix, own_groups, field) else { return };
        let samples = values.into_iter().filter_map(|(labels, value)| Some((labels, naming.number(&value)?)));
        self.add(MetricFamily {
            samples: samples.collect(),
            help: field.help.to_owned(),
            unit: naming.unit,
            kind: if naming.is_counter { FamilyKind::Counter } else { FamilyKind::Gauge },
            stem: naming.stem,
        });
    }

    /// Adds a family for each figure of a table, with a sample for each model.
    fn table<M>(&mut self, prefix: &str, own_groups: &[&str], table: &[ModelFigure<M>], models: &[(Labels, &M)]) {
        for figure in table {
            let values = models.iter().map(|(labels, model)| (labels.clone(), (figure.read)(model))).collect();
            self.figure(prefix, own_groups, &figure.field, values);
        }
    }

    fn sources(&mut self, figures: &MetricsSnapshot<'_>) {
        let of_host = figures.status.map(StatusReport::sources).unwrap_or_default();
        let healthy = of_host.into_iter().map(|(source, faults)| (source, faults.is_empty()));
        let of_daemon = [("guests", figures.guests.is_some()), ("balance", figures.balance.is_some())];
        let of_daemon = of_daemon.into_iter().filter(|_| figures.is_up);
        let samples =
            healthy.chain(of_daemon).map(|(source, is_so)| (vec![("source", label(source))], flag(is_so)));
        let help = "1 if a source of figures could be read; one that this kernel lacks counts as read.";
        self.gauge("ksmith_source_healthy", help, samples.collect());
    }

    fn status(&mut self, status: &StatusReport) {
        for (field, value) in figures::host(status) {
            self.figure("", &[], &field, vec![(vec![], value)]);
        }
        if let Some(daemon) = &status.daemon {
            let labels = vec![("policy", label(&daemon.policy)), ("state", label(&daemon.state))];
            self.info("ksmith_policy", "Policy in charge, and its state.", labels);
            self.table("controller_", &["limit"], CONTROLLER, &[(vec![], daemon)]);
        }
        if let Some(report) = &status.domains {
            let help = "1 if pages of different trust domains may be merged.";
            self.gauge("ksmith_domains_may_share_across", help, vec![(vec![], flag(report.may_share_across))]);
            let domains = report.domains.iter();
            let domains = domains.map(|one| (vec![("domain", label(one.domain.as_deref().unwrap_or("")))], one));
            self.table("domain_", &[], DOMAIN, &domains.collect::<Vec<_>>());
        }
        if let Some(history) = &status.history {
            self.table("history_", &[], HISTORY, &[(vec![], history)]);
        }
        if let Some(sketch) = &status.sketch {
            self.table("sketch_", &[], SKETCH, &[(vec![], sketch)]);
        }
        if let Some(balance) = &status.balance {
            self.table("balance_", &[], BALANCE, &[(vec![], balance)]);
        }
    }

    /// Adds the metrics of the `most` guests with the largest savings, and the number of the remaining ones.
    fn guests(&mut self, report: &GuestsReport, most: usize) {
        let mut guests: Vec<&Guest> = report.guests.iter().collect();
        guests.sort_by_key(|guest| (Reverse(guest.figures.saved_bytes), guest.id()));
        let not_shown = guests.len().saturating_sub(most);
        let count = |number: usize| vec![(vec![], SampleNumber::Unsigned(number as u64))];
        self.gauge("ksmith_guests", "Guests of the host.", count(guests.len()));
        let help = "Guests without metrics of their own: there are too many, and these save least.";
        self.gauge("ksmith_guests_not_shown", help, count(not_shown));
        guests.truncate(most);
        let shown = guests.into_iter().map(|guest| {
            let labels = vec![
                ("guest", label(&guest.name)),
                ("uuid", label(guest.uuid.as_deref().unwrap_or(""))),
                ("kind", label(&guest.kind.to_string())),
                ("domain", label(guest.domain.as_deref().unwrap_or(""))),
                // Always, so that a namesake that starts changes no series of this guest.
                ("pid", guest.id().pid().to_string()),
            ];
            (labels, guest)
        });
        let shown: Vec<(Labels, &Guest)> = shown.collect();
        self.table("guest_", &[], GUEST, &shown);
        let labelled = shown.iter().flat_map(|(identity, guest)| {
            guest.labels.iter().map(move |(name, value)| {
                let own = [("label", label(name)), ("value", label(value))];
                (identity.iter().cloned().chain(own).collect(), SampleNumber::Unsigned(1))
            })
        });
        self.add(MetricFamily {
            stem: "ksmith_guest_label".to_owned(),
            help: "A label that the configuration gives the guest, with its value.".to_owned(),
            unit: None,
            kind: FamilyKind::Info,
            samples: labelled.collect(),
        });
    }
}

fn flag(is_so: bool) -> SampleNumber {
    SampleNumber::Unsigned(u64::from(is_so))
}

/// Sanitizes untrusted text as a label value: bounded in length, and safe for a terminal.
fn label(text: &str) -> String {
    OneLine(text).to_string().chars().take(LONGEST_LABEL).collect()
}
