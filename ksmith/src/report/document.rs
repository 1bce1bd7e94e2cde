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
                    let cells = |tag: &str, cells: &[String]| {
                        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect::<String>()
                    };
                    page.push_str(&format!("<table><tr>{}</tr>\n", cells("th", headings)));
                    rows.iter().for_each(|row| page.push_str(&format!("<tr>{}</tr>\n", cells("td", row))));
                    page.push_str("</table>\n");
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
