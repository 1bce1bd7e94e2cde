//! `ksmith guests` as text and as JSON.

use ksmith_core::decide::domains::{CrossDomainSharing, PairSharing};
use ksmith_core::figures::{
    self, DOMAIN_SHARING, EFFICIENCY, GUEST, GuestGroupProperty, HOST_IN_GUESTS, ModelFigure, groups, insert,
    schema, sorted, summed,
};
use ksmith_core::guest::{Guest, SwitchOffReason};
use ksmith_core::model::GuestsReport;
use ksmith_core::printable::{TextPage, TextTone};
use ksmith_core::units::Bytes;
use serde_json::{Map, Value, json};

use super::{ALWAYS, TableColumn, TextTable, cell};

/// The grouping, order and limit of the rows that are shown.
#[derive(Debug, Clone)]
pub struct GuestOrder {
    /// The property by which guests are grouped; `None` if each guest is a row.
    pub by: Option<GuestGroupProperty>,
    /// The figure that rows are ordered by.
    pub sort: &'static ModelFigure<Guest>,
    /// True if the last row comes first.
    pub reverse: bool,
    /// Most rows that are shown; `None` if there is no limit.
    pub limit: Option<usize>,
    /// Number of guests before the filter, if there is one.
    pub filtered_from: Option<usize>,
}

impl GuestOrder {
    /// Returns an order of all rows, the largest first.
    pub fn new(by: Option<&'static ModelFigure<Guest>>, sort: &'static ModelFigure<Guest>) -> Self {
        Self { by: by.map(GuestGroupProperty::Figure), sort, reverse: false, limit: None, filtered_from: None }
    }

    /// Reverses rows if the order says so, and cuts them to the limit.
    pub fn cut<T>(&self, mut rows: Vec<T>) -> Vec<T> {
        if self.reverse {
            rows.reverse();
        }
        rows.truncate(self.limit.unwrap_or(usize::MAX));
        rows
    }

    /// Returns the guests that the rows show: with groups all of them.
    fn shown<'a>(&self, report: &'a GuestsReport) -> Vec<&'a Guest> {
        match self.by {
            None => self.cut(sorted(report, self.sort)),
            Some(_) => report.guests.iter().collect(),
        }
    }

    /// Returns true if rows are trust domains.
    fn is_by_domain(&self) -> bool {
        self.by.as_ref().is_some_and(GuestGroupProperty::is_domain)
    }
}

/// Returns the stable JSON form: `guests`, or `groups` if guests are grouped.
pub fn json(report: &GuestsReport, order: &GuestOrder) -> Value {
    let mut whole = figures::object(HOST_IN_GUESTS, report);
    for figure in EFFICIENCY {
        insert(&mut whole, figure.field.name, json!((figure.read)(report)));
    }
    whole.insert("errors".to_owned(), json!(report.errors));
    match &order.by {
        None => {
            let guests = order.cut(sorted(report, order.sort)).into_iter().map(guest_json).collect();
            whole.insert("guests".to_owned(), Value::Array(guests));
        }
        Some(label) => {
            whole.insert("groups".to_owned(), Value::Array(group_json(report, label, order)));
            if order.is_by_domain() {
                whole.insert("sharing".to_owned(), json!(report.sharing.as_ref().map(sharing_json)));
            }
        }
    }
    Value::Object(whole)
}

fn guest_json(guest: &Guest) -> Value {
    let mut object = figures::object(GUEST, guest);
    object.insert("pids".to_owned(), json!(guest.processes.iter().map(|id| id.pid).collect::<Vec<_>>()));
    object.insert("labels".to_owned(), json!(guest.labels));
    object.insert("switched_off".to_owned(), json!(guest.switched_off));
    object.insert("errors".to_owned(), json!(guest.errors));
    Value::Object(object)
}

fn group_json(report: &GuestsReport, label: &GuestGroupProperty, order: &GuestOrder) -> Vec<Value> {
    let groups = order.cut(groups(report, label, order.sort)).into_iter().map(|group| {
        let mut object = Map::new();
        for (figure, sum) in summed().zip(&group.sums) {
            insert(&mut object, figure.field.name, json!(sum));
        }
        object.insert("name".to_owned(), json!(group.name));
        object.insert("guests".to_owned(), json!(group.guests));
        if let Some(bytes) = group.across_bytes {
            object.insert("across_bytes".to_owned(), json!(bytes));
        }
        Value::Object(object)
    });
    groups.collect()
}

fn sharing_json(sharing: &CrossDomainSharing) -> Value {
    let domains = sharing.domains.iter().map(|domain| figures::object(DOMAIN_SHARING, domain));
    json!({
        "across_bytes": sharing.across_bytes,
        "domains": domains.collect::<Vec<_>>(),
        "pairs": sharing.pairs,
    })
}

/// Returns the schema of [`json()`].
pub fn schema() -> Value {
    let host = HOST_IN_GUESTS.iter().chain(EFFICIENCY).map(ModelFigure::row);
    let pids = schema::list("PIDs of the guest, the first process first.", schema::plain("integer", "A PID."));
    let labels = schema::map("Labels that the configuration gives the guest.", schema::plain("string", "A value."));
    let why =
        "Why ksmith has switched its merging off: prune, splits (of huge pages) or domain; null if it has not.";
    let switched_off = schema::plain("string?", why);
    let parts = [("pids", pids), ("labels", labels), ("switched_off", switched_off), ("errors", schema::errors())];
    let guest = schema::object(GUEST.iter().map(ModelFigure::row), parts);
    let across = "Merged memory that more than one domain maps, in bytes.";
    let group = schema::object(
        summed().map(ModelFigure::row),
        [
            ("name", schema::plain("string", "The label; - for guests without one.")),
            ("guests", schema::plain("integer", "Guests that are summed up.")),
            ("across_bytes", schema::plain("integer", across)),
        ],
    );
    let names = schema::list("The two domains; null for guests of none.", schema::plain("string?", "A name."));
    let pair = schema::object(
        [],
        [("domains", names), ("bytes", schema::plain("integer", "Memory that both map, each frame counted once."))],
    );
    let domains = schema::object(DOMAIN_SHARING.iter().map(ModelFigure::row), []);
    let sharing = schema::object(
        [],
        [
            ("across_bytes", schema::plain("integer", across)),
            ("domains", schema::list("Domains with merged memory.", domains)),
            ("pairs", schema::list("Each two domains that share.", pair)),
        ],
    );
    let parts = [
        ("errors", schema::errors()),
        ("guests", schema::list("Guests, without --by.", guest)),
        ("groups", schema::list("Sums of guests, with --by.", schema::optional(group, "across_bytes"))),
        ("sharing", schema::or_null(sharing)),
    ];
    let whole = schema::object(host, parts);
    let whole = ["guests", "groups", "sharing"].into_iter().fold(whole, schema::optional);
    schema::document("ksmith guests --json", whole)
}

/// Returns the text for people, on a terminal of this width.
pub fn text(report: &GuestsReport, order: &GuestOrder, width: Option<usize>) -> TextPage {
    let mut page = TextPage::new();
    write_text(report, order, width, &mut page);
    page
}

fn write_text(report: &GuestsReport, order: &GuestOrder, width: Option<usize>, page: &mut TextPage) {
    let all = order.filtered_from.unwrap_or(report.guests.len());
    if all == 0 {
        page.line("no guest has mergeable memory");
    } else if report.guests.is_empty() {
        page.line(format_args!("none of the {all} guests fits the filter"));
    } else {
        let (table, left) = table(report, order);
        page.lines(table.lines(width));
        if left > 0 {
            page.line(format_args!("… and {left} more"));
        }
        if let Some(before) = order.filtered_from {
            page.line(format_args!("{} of {before} guests fit the filter", report.guests.len()));
        }
        if let Some(sharing) = report.sharing.as_ref().filter(|_| order.is_by_domain()) {
            page.line("");
            page.line(in_words(sharing));
        }
    }
    let unattributed = match report.unattributed_bytes {
        0 => String::new(),
        bytes => format!("; {} of it in processes that are not shown", Bytes::from(bytes)),
    };
    page.line("");
    match report.is_unknown {
        true => {
            page.line("saved on this host: unknown, for this kernel has no KSM or its counters can't be read: `ksmith doctor` says why")
        }
        false => page.line(format_args!(
            "saved {} on this host (profit {}){unattributed}",
            Bytes::from(report.saved_bytes),
            Bytes::from(report.profit_bytes)
        )),
    }
    let shown = order.shown(report);
    for guest in &shown {
        if let Some(folded) = guest.folded_bytes.filter(|bytes| *bytes > 0) {
            page.line(format_args!(
                "{} of zeros in {} are folded, a part of what is saved",
                Bytes::from(folded),
                guest.title()
            ));
        }
    }
    match hugetlb_bytes(&shown) {
        0 => {}
        bytes => page.line(format_args!("{} in pages of hugetlbfs are never merged", Bytes::from(bytes))),
    }
    for figure in EFFICIENCY {
        if let Some(value) = (figure.read)(report).number() {
            let name = figure.field.name.rsplit('.').next().unwrap_or_default().replace('_', " ");
            page.line(format_args!("{name:<22}{value:<8.3}{}", figure.field.help));
        }
    }
    let of_guests =
        shown.iter().flat_map(|guest| guest.errors.iter().map(move |error| format!("{}: {error}", guest.title())));
    let notes = report.errors.iter().cloned().chain(of_guests);
    for error in notes.chain(remaining(&shown)).chain(split_for_little(&shown)) {
        page.partly_toned("", TextTone::Warning, "note", format_args!("  {error}"));
    }
}

/// The figure that is a column only where a guest has some of it.
const HUGETLB: &str = "hugetlb_bytes";

/// Returns the sum of the guests' memory in pages of hugetlbfs.
fn hugetlb_bytes(guests: &[&Guest]) -> u64 {
    guests.iter().filter_map(|guest| guest.figures.memory.hugetlb_bytes).sum()
}

/// Returns the heading of a figure's column and its importance; `None` if it is no column of this report.
fn column(figure: &ModelFigure<Guest>, has_hugetlb: bool) -> Option<(&'static str, u8)> {
    match figure.field.name {
        HUGETLB => has_hugetlb.then_some(("hugetlb", 45)),
        _ => Some((figure.heading?, figure.importance)),
    }
}

/// Returns the table, and the number of rows that it leaves out.
fn table(report: &GuestsReport, order: &GuestOrder) -> (TextTable, usize) {
    let has_hugetlb = hugetlb_bytes(&order.shown(report)) > 0;
    let is_column = |figure: &&ModelFigure<Guest>| column(figure, has_hugetlb).is_some();
    let columns: Vec<&ModelFigure<Guest>> = GUEST.iter().filter(is_column).collect();
    let across = figures::across().filter(|_| report.sharing.is_some() && order.is_by_domain());
    let has_labels = order.by.is_none() && report.guests.iter().any(|guest| !guest.labels.is_empty());
    let head = match &order.by {
        None => vec![("guest", ALWAYS), ("kind", 60), ("pid", 75)],
        Some(grouping) => vec![(grouping.name(), ALWAYS), ("guests", 75), ("", 0)],
    };
    let of_labels = has_labels.then_some(("labels", 65));
    let head = head.into_iter().chain(of_labels);
    let head = head.map(|(heading, importance)| TableColumn::new(heading, importance));
    let of_figures = columns.iter().filter_map(|figure| {
        let is_order = figure.field.name == order.sort.field.name;
        let (heading, importance) = column(figure, has_hugetlb)?;
        Some(TableColumn::new(heading, if is_order { ALWAYS } else { importance }))
    });
    let across = across.and_then(|row| Some(TableColumn::new(row.heading?, 95)));
    let mut table = TextTable::of_columns(head.chain(of_figures).chain(across).collect());
    let all = match &order.by {
        None => {
            let guests = sorted(report, order.sort);
            let all = guests.len();
            for guest in order.cut(guests) {
                let others = guest.processes.len().saturating_sub(1);
                let others = if others > 0 { format!("+{others}") } else { String::new() };
                let head = [guest.shown_name(), guest.kind.to_string(), format!("{}{others}", guest.id().pid())];
                let cells = columns.iter().map(|figure| cell(&figure.field, &(figure.read)(guest)));
                let labels = has_labels.then(|| guest.shown_labels().unwrap_or_else(|| figures::NONE.to_owned()));
                table.cells(head.into_iter().chain(labels).chain(cells).collect());
            }
            all
        }
        Some(label) => {
            let groups = groups(report, label, order.sort);
            let all = groups.len();
            for group in order.cut(groups) {
                let head = [group.name, group.guests.to_string(), String::new()];
                let sums = summed().zip(&group.sums).filter(|(figure, _)| is_column(figure));
                let sums = sums.map(|(figure, sum)| cell(&figure.field, sum));
                let across = group.across_bytes.map(|bytes| Bytes::from(bytes).to_string());
                table.cells(head.into_iter().chain(sums).chain(across).collect());
            }
            all
        }
    };
    (table, all.saturating_sub(order.limit.unwrap_or(usize::MAX)))
}

/// Returns `a and b share 12.0 MiB`, or that no two domains share.
fn in_words(sharing: &CrossDomainSharing) -> String {
    let pair = |pair: &PairSharing| {
        let bytes = Bytes::from(pair.bytes);
        match pair.domains.each_ref().map(Option::as_deref) {
            [Some(one), Some(other)] => format!("{one} and {other} share {bytes}"),
            [None, None] => format!("guests of no domain share {bytes} among themselves"),
            [Some(one), None] | [None, Some(one)] => format!("{one} shares {bytes} with guests of no domain"),
        }
    };
    let pairs: Vec<String> = sharing.pairs.iter().map(pair).collect();
    match pairs.is_empty() {
        true => "no merged page is shared across domains now".to_owned(),
        false => {
            format!("across domains {} are shared now: {}", Bytes::from(sharing.across_bytes), pairs.join("; "))
        }
    }
}

/// Returns a note on the guests that are switched off since merging split their huge pages for little, if there are any.
fn split_for_little(guests: &[&Guest]) -> Option<String> {
    let guests = guests.iter().filter(|guest| guest.switched_off == Some(SwitchOffReason::Splits));
    let names: Vec<String> = guests.map(|guest| guest.title()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "merging of {} is off: it splits their huge pages for little ([guests] prune has it on when memory is short)",
            names.join(", ")
        )
    })
}

/// Returns a note on the guests that are switched off and still have mergeable memory, if there are any.
fn remaining(guests: &[&Guest]) -> Option<String> {
    let guests = guests.iter().filter(|guest| guest.has_remaining_mergeable);
    let names: Vec<String> = guests.map(|guest| guest.title()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the RAM of {} is not offered to merging; QEMU's firmware and devices still are, across domains too: \
             -machine mem-merge=off at their start ends that (/usr/share/doc/ksmith/docs/how-to/domains.md)",
            names.join(", ")
        )
    })
}
