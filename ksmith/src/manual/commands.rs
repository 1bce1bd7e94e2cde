//! The commands as the manual shows them: the tree of the command line as a list.

use clap::{Arg, Command};

use super::examples::{Example, command_examples};

/// One command of the manual.
#[derive(Debug)]
pub struct CommandPage<'a> {
    /// The command with its options.
    pub command: &'a Command,
    /// The words that call it: `lab run`. The program itself has none.
    pub words: String,
}

impl CommandPage<'_> {
    /// Returns the name of its man page, such as `ksmith-lab-run`.
    pub fn name(&self) -> String {
        format!("ksmith {}", self.words).trim_end().replace(' ', "-")
    }

    /// Returns the command line that calls it, such as `ksmith lab run`.
    pub fn call(&self) -> String {
        format!("ksmith {}", self.words).trim_end().to_owned()
    }

    /// Returns examples of the command.
    pub fn examples(&self) -> &'static [Example] {
        command_examples(&self.words)
    }

    /// Returns true if it only holds other commands.
    pub fn is_group(&self) -> bool {
        let holds_others = self.command.get_subcommands().any(|inner| !inner.is_hide_set());
        holds_others && (self.words.is_empty() || self.own().next().is_none())
    }

    /// Returns its own arguments and options: neither hidden ones nor those of every command.
    pub fn own(&self) -> impl Iterator<Item = &Arg> {
        let is_program = self.words.is_empty();
        let arguments = self.command.get_arguments().filter(|argument| !argument.is_hide_set());
        arguments.filter(move |argument| is_program || !(argument.is_global_set() || is_help(argument)))
    }
}

fn is_help(argument: &Arg) -> bool {
    ["help", "version"].contains(&argument.get_id().as_str())
}

/// Returns the program and all its commands that are not hidden, in the order of the help.
pub fn pages(program: &Command) -> Vec<CommandPage<'_>> {
    let mut pages = vec![CommandPage { command: program, words: String::new() }];
    add(&mut pages, program, "");
    pages
}

fn add<'a>(pages: &mut Vec<CommandPage<'a>>, command: &'a Command, words: &str) {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        let words = format!("{words} {}", inner.get_name()).trim_start().to_owned();
        pages.push(CommandPage { command: inner, words: words.clone() });
        add(pages, inner, &words);
    }
}
