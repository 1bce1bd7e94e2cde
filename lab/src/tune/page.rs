//! The report of a search: the front as a plot and a table, and the points to compare with the defaults, story by story.

use std::fmt::Write;

use super::{TunePoint, TuneResult};
use crate::report::{FrontPlot, ReportError, escape, front_plot, head};

/// Renders the whole page.
pub(super) fn page(tuned: &TuneResult) -> Result<String, ReportError> {
    let mut page = head("ksmith sim tune");
    let of = format!(
        "<h1>ksmith sim tune: {}</h1>\n<p>ksmith {} on Linux {}; {} points played in {} stories, {} refused, seed {}{}.</p>\n",
        escape(&tuned.policy),
        escape(tuned.ksmith),
        escape(&tuned.kernel),
        tuned.points.len(),
        tuned.stories.len(),
        tuned.refused,
        tuned.seed,
        if tuned.is_stopped { "; ended early" } else { "" },
    );
    page.push_str(&of);
    page.push_str("<p>Saved: of what could be, the mean of the stories. CPU: of ksmd, relative to the defaults, the mean of the stories.</p>\n");
    page.push_str(&plot(tuned)?);
    page.push_str("<h2>The front</h2>\n");
    table_of_front(&mut page, tuned);
    let place = &tuned.place;
    let compared = [
        ("as much for least CPU", &place.cheapest),
        ("most for as much CPU", &place.fullest),
        ("no worse in any story", &place.cheapest_everywhere),
    ];
    let compared: Vec<(&str, &TunePoint)> =
        compared.iter().filter_map(|(name, point)| Some((*name, point.as_ref()?))).collect();
    page.push_str("<h2>Where the defaults lie</h2>\n");
    add(&mut page, format_args!("<p>{}</p>\n", escape(&tuned.verdict())));
    stories(&mut page, tuned, &compared);
    page.push_str("</body></html>\n");
    Ok(page)
}

fn plot(tuned: &TuneResult) -> Result<String, ReportError> {
    let at = |point: &TunePoint| (point.cpu, 100.0 * point.share);
    let tried: Vec<_> = tuned.points.iter().map(at).collect();
    let best: Vec<_> = tuned.front.iter().map(at).collect();
    let front = FrontPlot {
        cost: "ksmd's CPU, relative to the defaults",
        benefit: "saved of what could be, %",
        tried: &tried,
        best: &best,
        usual: at(&tuned.defaults),
        name: "defaults",
    };
    front_plot(&tuned.policy, &front)
}

fn table_of_front(page: &mut String, tuned: &TuneResult) {
    page.push_str("<table class=\"measures\"><tr><th></th><th>saved, %</th><th>CPU</th>");
    for key in &tuned.keys {
        add(page, format_args!("<th>{}</th>", escape(&key.name.replace('_', " "))));
    }
    page.push_str("</tr>\n");
    let rows = tuned.front.iter().enumerate().map(|(number, point)| ((number + 1).to_string(), point));
    for (name, point) in rows.chain([("defaults".to_owned(), &tuned.defaults)]) {
        add(page, format_args!("<tr><td>{name}</td><td>{:.2}</td><td>{:.3}</td>", 100.0 * point.share, point.cpu));
        for value in &point.values {
            add(page, format_args!("<td>{value}</td>"));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

fn stories(page: &mut String, tuned: &TuneResult, compared: &[(&str, &TunePoint)]) {
    page.push_str("<table class=\"measures\"><tr><th>GiB-seconds saved; CPU-seconds</th><th>defaults</th>");
    for (name, _) in compared {
        add(page, format_args!("<th>{}</th>", escape(name)));
    }
    page.push_str("</tr>\n");
    for (number, story) in tuned.stories.iter().enumerate() {
        add(page, format_args!("<tr><td>{}</td>", escape(&story.name)));
        for point in [&tuned.defaults].into_iter().chain(compared.iter().map(|(_, point)| *point)) {
            if let Some(it) = point.stories.get(number) {
                add(page, format_args!("<td>{:.1}; {:.2}</td>", it.gib_seconds, it.ksmd_cpu_seconds));
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

/// Appends text. Writing to a string can't fail.
fn add(page: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = page.write_fmt(text);
}
