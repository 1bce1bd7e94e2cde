//! The settings as the packaged configuration lists them: each table and key with its default and its meaning.
//!
//! A line is a table (`[limits]`), a key (`prune = false`), or either of them behind `# `, which stands for a key
//! without a default. The comment behind it is the meaning, and continues in indented comment lines.

/// The packaged configuration.
pub const PACKAGED: &str = include_str!("../../../packaging/ksmith.toml");

/// All settings of the configuration.
#[derive(Debug, Default)]
pub struct PackagedSettings {
    /// The comment at the top of the file.
    pub preface: String,
    /// The tables, in the order of the file.
    pub tables: Vec<SettingsTable>,
}

/// One table of the configuration.
#[derive(Debug)]
pub struct SettingsTable {
    /// Its header: `[limits]` or `[[domains.rule]]`.
    pub header: String,
    /// Description of the table.
    pub meaning: String,
    /// Keys of the table.
    pub keys: Vec<SettingsKey>,
}

impl SettingsTable {
    /// Returns its name, without brackets.
    pub fn name(&self) -> &str {
        self.header.trim_matches(['[', ']'])
    }
}

/// One key of a table.
#[derive(Debug)]
pub struct SettingsKey {
    /// Name of the key.
    pub name: String,
    /// Its value in the file, as TOML.
    pub value: String,
    /// True if the value is the default. Otherwise the key has no default, and the value is an example.
    pub is_default: bool,
    /// Description of the key.
    pub meaning: String,
}

/// A fault of the packaged configuration, and so of the program.
#[derive(Debug, thiserror::Error)]
pub enum BadPackagedSettings {
    /// A line with its number.
    #[error("ksmith.toml, line {0}: neither a table, a key nor a comment: {1}")]
    Line(usize, String),
    /// A value that is no TOML.
    #[error("ksmith.toml: {0}: {1}")]
    Value(String, toml::de::Error),
}

impl PackagedSettings {
    /// Reads the packaged configuration.
    ///
    /// # Errors
    /// As [`PackagedSettings::read`].
    pub fn packaged() -> Result<Self, BadPackagedSettings> {
        Self::read(PACKAGED)
    }

    /// Reads the text of a configuration.
    ///
    /// # Errors
    /// A line is neither a table, a key nor a comment, or a comment continues nothing.
    pub fn read(text: &str) -> Result<Self, BadPackagedSettings> {
        let mut settings = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            settings.add(line).ok_or_else(|| BadPackagedSettings::Line(number + 1, line.to_owned()))?;
        }
        Ok(settings)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let said = line.strip_prefix("# ");
        let (code, is_default) = said.map_or((line, true), |line| (line, false));
        let (code, meaning) = divide(code);
        if code.starts_with('[') && code.ends_with(']') {
            self.tables.push(SettingsTable {
                header: code.to_owned(),
                meaning: meaning.to_owned(),
                keys: Vec::new(),
            });
            return Some(());
        }
        if let (Some((name, value)), Some(table)) = (assignment(code), self.tables.last_mut()) {
            let (name, value, meaning) = (name.to_owned(), value.to_owned(), meaning.to_owned());
            table.keys.push(SettingsKey { name, value, is_default, meaning });
            return Some(());
        }
        // A comment of its own: at the top of the file it is about all, and indented it goes on with what is above it.
        let comment = line.trim_start().strip_prefix('#')?.trim();
        let before = match self.tables.last_mut() {
            None => &mut self.preface,
            Some(table) if line.starts_with(' ') => {
                table.keys.last_mut().map_or(&mut table.meaning, |key| &mut key.meaning)
            }
            Some(_) => return None,
        };
        if !before.is_empty() {
            before.push(' ');
        }
        before.push_str(comment);
        Some(())
    }
}

/// Splits a line into its TOML and the comment behind it.
fn divide(line: &str) -> (&str, &str) {
    let mut is_quoted = false;
    for (at, letter) in line.char_indices() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return (line[..at].trim(), line[at + 1..].trim()),
            _ => {}
        }
    }
    (line.trim(), "")
}

/// Returns the name and the value of a key, if this is one.
fn assignment(code: &str) -> Option<(&str, &str)> {
    let (name, value) = code.split_once(" = ")?;
    let is_name = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
    is_name.then(|| (name, value.trim()))
}
