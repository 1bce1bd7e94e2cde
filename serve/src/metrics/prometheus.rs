//! Conversion of OpenMetrics to Prometheus' text format.
//!
//! Prometheus' format has neither units nor an end marker. A counter's description includes its `_total`, and an info
//! is a gauge.

/// Converts OpenMetrics to Prometheus' text format 0.0.4.
pub(super) fn from_openmetrics(text: &str) -> String {
    let mut page = String::with_capacity(text.len());
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (end, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                other => ("", other),
            };
            page.push_str(&format!("# HELP {name}{end} {help}\n# TYPE {name}{end} {kind}\n"));
        } else if !line.starts_with('#') {
            page.push_str(line);
            page.push('\n');
        }
    }
    page
}
