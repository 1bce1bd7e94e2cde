//! Completion scripts, which ask the program itself for the candidates.

use clap_complete::Shell;
use clap_complete::env::Shells;

/// The variable by which a completion script asks for candidates. Its value is the shell.
pub const COMPLETION_VARIABLE: &str = "KSMITH_COMPLETE";

/// Zsh runs a file of its completion system at the first completion, which is to have candidates too.
const FIRST_OF_ZSH: &str = "[[ $funcstack[1] != _ksmith ]] || _clap_dynamic_completer_ksmith \"$@\"\n";

/// Returns the completion script of a shell.
pub fn completion_script(shell: Shell) -> Vec<u8> {
    let (shells, mut script) = (Shells::builtins(), Vec::new());
    if let Some(completer) = shells.completer(&shell.to_string()) {
        // A vector takes all that is written.
        let _ = completer.write_registration(COMPLETION_VARIABLE, "ksmith", "ksmith", "ksmith", &mut script);
    }
    if shell == Shell::Zsh {
        script.extend_from_slice(FIRST_OF_ZSH.as_bytes());
    }
    script
}
