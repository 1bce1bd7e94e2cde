//! The manual: man pages, completions and the reference pages, from the command line's own table and the packaged configuration.

mod commands;
mod examples;
mod files;
mod man;
mod markdown;
mod scripts;
pub mod settings;

use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;

pub use examples::command_examples;
pub use scripts::{COMPLETION_VARIABLE, completion_script};

use commands::pages;
use settings::{BadPackagedSettings, PackagedSettings};

/// One file of the manual.
#[derive(Debug)]
pub struct ManualFile {
    /// Path of the file in the directory of the manual.
    pub path: PathBuf,
    /// Content of the file.
    pub content: Vec<u8>,
}

/// Returns all files of the manual of this command, dated `YYYY-MM-DD` where a date is given.
///
/// # Errors
/// The packaged configuration has a line that is neither a table, a key nor a comment.
pub fn manual(command: Command, date: &str) -> Result<Vec<ManualFile>, BadPackagedSettings> {
    let settings = PackagedSettings::packaged()?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let pages = pages(&command);
    let mut files: Vec<ManualFile> = pages
        .iter()
        .map(|page| ManualFile {
            path: PathBuf::from(format!("man1/{}.1", page.name())),
            content: man::of_command(page, &pages, date),
        })
        .collect();
    files.push(ManualFile { path: "man5/ksmith.toml.5".into(), content: man::of_settings(&settings, date) });
    for (shell, name) in [(Shell::Bash, "ksmith.bash"), (Shell::Zsh, "_ksmith"), (Shell::Fish, "ksmith.fish")] {
        files.push(ManualFile { path: PathBuf::from("completions").join(name), content: completion_script(shell) });
    }
    let reference = PathBuf::from("reference");
    let commands = markdown::of_commands(&pages).into_bytes();
    files.push(ManualFile { path: reference.join("commands.md"), content: commands });
    let configuration = markdown::of_settings(&settings).into_bytes();
    files.push(ManualFile { path: reference.join("configuration.md"), content: configuration });
    Ok(files)
}

#[cfg(test)]
mod tests;
