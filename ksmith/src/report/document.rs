//! A document of headings, sentences, tables and figures, and its forms.

use ksmith_core::printable::OneLine;
use ksmith_lab::report::{escape, head};

/// A part of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum DocumentPart {
    /// A heading of a section.
    Heading(String),
    /// A paragraph of text.
    Text(String),
    /// A table: the headings, and rows with as many cells.
    Table(Vec<String>, Vec<Vec<String>>),
    /// A picture: what it shows, and the SVG.
    Picture(String, String),
}

/// A document with a title.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportDocument {
    /// The title of the document.
    pub title: String,
    /// The parts, in their order.
    pub parts: Vec<DocumentPart>,
}

impl ReportDocument {
    /// Returns the document as one HTML file without references to other files.
    pub fn html(&self) -> String {
        let mut page = head(&self.title);
        page.push_str(&format!("<h1>{}</h1>\n", escape(&self.title)));
        for part in &self.parts {
            match part {
                DocumentPart::Heading(text) => page.push_str(&format!("<h2>{}</h2>\n", escape(text))),
                DocumentPart::Text(text) => page.push_str(&format!("<p>{}</p>\n", escape(text))),
                DocumentPart::Picture(caption, svg) => {
                    page.push_str(&format!("<h3>{}</h3>\n{svg}\n", escape(caption)));
                }
                DocumentPart::Table(headings, rows) => {
                    let classes: Vec<&str> = (0..headings.len())
                        .map(|column| if is_numeric_column(rows, column) { " class=\"number\"" } else { "" })
                        .collect();
                    let line = |tag: &str, cells: &[String]| {
                        let cells = cells.iter().zip(&classes);
                        cells
                            .map(|(cell, class)| format!("<{tag}{class}>{}</{tag}>", escape(cell)))
                            .collect::<String>()
                    };
                    page.push_str(&format!("<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n", line("th", headings)));
                    rows.iter().for_each(|row| page.push_str(&format!("<tr>{}</tr>\n", line("td", row))));
                    page.push_str("</tbody></table>\n");
                }
            }
        }
        page.push_str("</body></html>\n");
        page
    }

    /// Returns the document as Markdown. A picture is only named: Markdown has none inside the file.
    pub fn markdown(&self) -> String {
        let mut page = format!("# {}\n", plain(&self.title));
        for part in &self.parts {
            page.push('\n');
            match part {
                DocumentPart::Heading(text) => page.push_str(&format!("## {}\n", plain(text))),
                DocumentPart::Text(text) => page.push_str(&format!("{}\n", plain(text))),
                DocumentPart::Picture(caption, _) => {
                    page.push_str(&format!("_{}: in the forms .html and .svg._\n", plain(caption)));
                }
                DocumentPart::Table(headings, rows) => {
                    let line = |cells: &[String]| {
                        let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
                        format!("| {} |\n", cells.join(" | "))
                    };
                    let rule = vec!["---".to_owned(); headings.len()];
                    page.push_str(&line(headings));
                    page.push_str(&format!("|{}|\n", rule.join("|")));
                    rows.iter().for_each(|row| page.push_str(&line(row)));
                }
            }
        }
        page
    }
}

/// Longest text of a figure with its unit: `3 min 20 s`, `2026-11-23 20:15:07`.
const FIGURE_LENGTH: usize = 20;

/// Returns true if all cells of the column are figures, or say that there is none. Other columns are prose, which wraps.
fn is_numeric_column(rows: &[Vec<String>], column: usize) -> bool {
    let is_figure = |cell: &String| {
        let is_number = cell.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit());
        cell == "-" || is_number && cell.chars().count() <= FIGURE_LENGTH
    };
    !rows.is_empty() && rows.iter().filter_map(|row| row.get(column)).all(is_figure)
}

/// Escapes text for Markdown: names of guests are chosen by others.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for character in OneLine(text).to_string().chars() {
        if matches!(character, '|' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '!' | '\\') {
            plain.push('\\');
        }
        plain.push(character);
    }
    plain
}
