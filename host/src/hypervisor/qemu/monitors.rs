//! The monitors on QEMU's command line: the sockets that QEMU itself serves. A socket without `server` is another
//! program's, to which QEMU connects.

use ksmith_core::kernel::CommandLine;

use crate::hypervisor::options::{field, first};
use crate::hypervisor::qmp::MonitorSocket;

/// Parses the QMP monitors, in the order of the command line. Those on TCP or a terminal are left out.
pub(in crate::hypervisor) fn monitors(line: &CommandLine) -> Vec<MonitorSocket> {
    let mut found = Vec::new();
    let arguments = line.arguments();
    for (option, value) in arguments.iter().zip(arguments.iter().skip(1)) {
        match option.trim_start_matches('-') {
            "qmp" | "qmp-pretty" if option.starts_with('-') => found.extend(of_device(value, arguments)),
            "mon" if field(value, "mode") == Some("control") => {
                let id = field(value, "chardev").unwrap_or(first(value));
                found.extend(of_chardev(id, arguments));
            }
            _ => {}
        }
    }
    found
}

/// Parses `unix:PATH,server=on`, `unix:path=PATH`, or `chardev:ID`.
fn of_device(value: &str, arguments: &[String]) -> Option<MonitorSocket> {
    if let Some(id) = value.strip_prefix("chardev:") {
        return of_chardev(id, arguments);
    }
    let options = value.strip_prefix("unix:").filter(|options| is_server(options))?;
    path(field(options, "path").unwrap_or(first(options)))
}

/// Finds the socket of `-chardev socket,id=ID,path=PATH` (or `fd=N`).
fn of_chardev(id: &str, arguments: &[String]) -> Option<MonitorSocket> {
    let chardevs = arguments.iter().zip(arguments.iter().skip(1)).filter(|(option, value)| {
        option.trim_start_matches('-') == "chardev" && first(value) == "socket" && field(value, "id") == Some(id)
    });
    chardevs.into_iter().find_map(|(_, value)| match (field(value, "path"), field(value, "fd")) {
        (Some(at), _) => path(at).filter(|_| is_server(value)),
        (None, Some(_)) => Some(MonitorSocket::Inherited),
        (None, None) => None,
    })
}

/// Returns true if QEMU listens at the socket. Its default is to connect to it.
fn is_server(options: &str) -> bool {
    let is_on = |value: &str| ["on", "yes", "y", "true"].contains(&value);
    options.split(',').any(|option| option == "server" || option.strip_prefix("server=").is_some_and(is_on))
}

fn path(text: &str) -> Option<MonitorSocket> {
    (!text.is_empty()).then(|| MonitorSocket::Path(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> CommandLine {
        CommandLine::parse(text.replace(' ', "\0").as_bytes())
    }

    fn path_of(text: &str) -> Vec<MonitorSocket> {
        monitors(&line(&format!("qemu-system-x86_64 {text}")))
    }

    #[test]
    fn every_way_to_a_qmp_socket_is_known() {
        let expected = [MonitorSocket::Path("/run/q.sock".to_owned())];
        for text in [
            "-qmp unix:/run/q.sock,server=on,wait=off",
            "--qmp unix:/run/q.sock,server",
            "-qmp-pretty unix:path=/run/q.sock,server=on",
            "-chardev socket,id=c,path=/run/q.sock,server=on -mon chardev=c,mode=control",
            "-mon c,mode=control -chardev socket,server=on,path=/run/q.sock,id=c",
            "-chardev socket,id=c,path=/run/q.sock,server=true -qmp chardev:c",
        ] {
            assert_eq!(path_of(text), expected, "{text}");
        }
        let libvirt = "-chardev socket,id=charmonitor,fd=33,server=on -mon chardev=charmonitor,id=m,mode=control";
        assert_eq!(path_of(libvirt), [MonitorSocket::Inherited]);
        assert_eq!(path_of("-qmp unix:a,server -qmp unix:b,server=yes").len(), 2);
    }

    #[test]
    fn a_monitor_without_a_socket_on_this_host_is_none() {
        for text in [
            "-qmp tcp:localhost:4444,server=on",
            "-qmp stdio",
            "-monitor unix:/run/human.sock,server",
            "-chardev socket,id=c,path=/p -mon chardev=c,mode=readline",
            "-mon chardev=absent,mode=control",
            "-chardev socket,id=c,host=h,port=1 -mon chardev=c,mode=control",
            "-qmp unix:",
            "-qmp unix:/run/peer",
            "-qmp unix:/run/peer,server=off",
            "-chardev socket,id=c,path=/run/peer,reconnect=5 -mon chardev=c,mode=control",
            "-qmp",
            "",
        ] {
            assert_eq!(path_of(text), [], "{text}");
        }
    }
}
