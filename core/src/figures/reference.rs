//! The reference page of all figures.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{
    BALANCE, BALANCED_GUEST, CONTROLLER, DOMAIN, DOMAIN_SHARING, EFFICIENCY, FigureRow, GUEST, HISTORY,
    ModelFigure, POLICY, POOL, PROCESS, RESIZE, SKETCH, VERDICT, host,
};

/// A part of the page: its heading, where the figures are shown, and the figures.
type Section = (&'static str, &'static str, Vec<FigureRow>);

fn rows<M>(table: &'static [ModelFigure<M>]) -> Vec<FigureRow> {
    table.iter().map(ModelFigure::row).collect()
}

fn sections() -> [Section; 11] {
    let host = host::rows().chain(EFFICIENCY.iter().map(ModelFigure::row)).collect();
    let domain = DOMAIN.iter().map(ModelFigure::row).chain(DOMAIN_SHARING.iter().map(ModelFigure::row)).collect();
    let policy = POLICY.iter().map(ModelFigure::row).chain(BALANCE.iter().map(ModelFigure::row)).collect();
    [
        ("Host", "`ksmith status`, `ksmith guests`", host),
        ("Verdict", "`verdict` of `ksmith status`", rows(VERDICT)),
        ("Process", "`processes` of `ksmith status`", rows(PROCESS)),
        ("Guest", "`guests` of `ksmith guests`; `--sort` takes each, and `--by` each label", rows(GUEST)),
        ("Domain", "`domains` of `ksmith status`, `sharing` of `ksmith guests --by domain`", domain),
        ("Pool", "`ksmith balance`", rows(POOL)),
        ("Guest in balance", "`guests` and `recent` of `ksmith balance`", {
            rows(BALANCED_GUEST).into_iter().chain(rows(RESIZE)).collect()
        }),
        ("Policy", "`daemon` and `balance` of `ksmith status`", policy),
        ("Controller", "`daemon` of `ksmith status`", rows(CONTROLLER)),
        ("History", "`history` of `ksmith status`", rows(HISTORY)),
        ("Sketch", "`sketch` of `ksmith status`", rows(SKETCH)),
    ]
}

/// The text of `docs/reference/figures.md`: every figure with unit, kind, first kernel, source and help.
pub fn reference() -> String {
    let mut page = String::from(
        "# Figures\n\n\
         Each figure that ksmith shows, by its JSON key. A dot in a key stands for a step into an object. `null` means \
         that the value is unknown, or that this kernel lacks it. A gauge goes up and down, a counter grows, a state \
         holds until it is changed. `ksmith schema COMMAND` prints the JSON Schema of what `ksmith COMMAND --json` \
         prints.\n\n\
         This page is generated: `cargo run -p ksmith -- schema --figures > docs/reference/figures.md`.\n",
    );
    for (heading, place, rows) in sections() {
        let _ = write!(
            page,
            "\n## {heading}\n\nIn {place}.\n\n| key | unit | kind | since | source | meaning |\n|---|---|---|---|---|---|\n"
        );
        let mut seen = BTreeSet::new();
        for FigureRow { field, .. } in rows {
            if seen.insert(field.name) {
                let (unit, kind) = (field.unit.word(), field.kind.word());
                let _ = writeln!(
                    page,
                    "| `{}` | {unit} | {kind} | {} | {} | {} |",
                    field.name, field.since, field.source, field.help
                );
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_sentence_of_help_and_a_source() {
        for (heading, _, rows) in sections() {
            assert!(!rows.is_empty(), "{heading}");
            for FigureRow { field, .. } in rows {
                let starts_well = field.help.chars().next().is_some_and(|c| !c.is_lowercase());
                assert!(starts_well && field.help.ends_with('.'), "{}: {:?}", field.name, field.help);
                assert!(field.help.split(' ').count() <= 25 && !field.source.is_empty(), "{}", field.name);
                assert!(!field.source.contains('|') && !field.help.contains('|'), "{}", field.name);
            }
        }
    }

    #[test]
    fn no_key_of_a_table_stands_there_twice() {
        for rows in [rows(GUEST), rows(PROCESS), rows(POOL), rows(BALANCED_GUEST), rows(RESIZE), rows(BALANCE)] {
            let keys: BTreeSet<&str> = rows.iter().map(|row| row.field.name).collect();
            assert_eq!(keys.len(), rows.len());
        }
    }
}
