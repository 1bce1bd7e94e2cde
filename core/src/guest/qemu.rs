//! What QEMU's command line says of its monitors and of memory that can't merge.

use super::command::{field, first};
use crate::kernel::CommandLine;

/// A monitor that speaks QMP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Monitor {
    /// A unix socket by its path, relative to QEMU's working directory unless it begins with a slash.
    Path(String),
    /// A socket that was handed over open: libvirt's. Whoever did that must be asked.
    Inherited,
}

/// The QMP monitors, in the order of the command line. Those on TCP or a terminal are left out.
pub fn monitors(line: &CommandLine) -> Vec<Monitor> {
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

/// `unix:PATH,server=on`, `unix:path=PATH`, or `chardev:ID`.
fn of_device(value: &str, arguments: &[String]) -> Option<Monitor> {
    if let Some(id) = value.strip_prefix("chardev:") {
        return of_chardev(id, arguments);
    }
    let options = value.strip_prefix("unix:")?;
    path(field(options, "path").unwrap_or(first(options)))
}

/// The socket of `-chardev socket,id=ID,path=PATH` (or `fd=N`).
fn of_chardev(id: &str, arguments: &[String]) -> Option<Monitor> {
    let chardevs = arguments.iter().zip(arguments.iter().skip(1)).filter(|(option, value)| {
        option.trim_start_matches('-') == "chardev" && first(value) == "socket" && field(value, "id") == Some(id)
    });
    chardevs.into_iter().find_map(|(_, value)| match (field(value, "path"), field(value, "fd")) {
        (Some(at), _) => path(at),
        (None, Some(_)) => Some(Monitor::Inherited),
        (None, None) => None,
    })
}

fn path(text: &str) -> Option<Monitor> {
    (!text.is_empty()).then(|| Monitor::Path(text.to_owned()))
}

/// Why no page of this guest can merge: devices of the host hold its memory in place (`vfio`), or it lies in memory
/// that KSM passes over.
pub fn obstacle(line: &CommandLine) -> Option<&'static str> {
    let arguments = line.arguments();
    let any = |is: &dyn Fn(&str, &str) -> bool| {
        arguments
            .iter()
            .zip(arguments.iter().skip(1))
            .any(|(option, value)| is(option.trim_start_matches('-'), value))
    };
    let is_vfio = |option: &str, value: &str| {
        option == "device" && (value.starts_with("vfio-") || value.contains("\"driver\":\"vfio-"))
    };
    // One backend that is private can merge: only if all are shared nothing can.
    let is_backend = |option: &str, value: &str| option == "object" && value.contains("memory-backend-");
    let is_private = |option: &str, value: &str| {
        let shared = value.contains("share=on") || value.contains("share=yes") || value.contains("\"share\":true");
        let memfd = value.contains("memory-backend-memfd") && !value.contains("share=off");
        is_backend(option, value) && !shared && !memfd
    };
    let is_huge = |option: &str, value: &str| {
        (option == "mem-path" || is_backend(option, value))
            && (value.contains("hugepages") || value.contains("hugetlb=on"))
    };
    if any(&is_vfio) {
        Some("vfio")
    } else if any(&is_huge) {
        Some("hugepages")
    } else if any(&is_backend) && !any(&is_private) {
        Some("shared")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> CommandLine {
        CommandLine::parse(text.replace(' ', "\0").as_bytes())
    }

    fn path_of(text: &str) -> Vec<Monitor> {
        monitors(&line(&format!("qemu-system-x86_64 {text}")))
    }

    #[test]
    fn every_way_to_a_qmp_socket_is_known() {
        let expected = [Monitor::Path("/run/q.sock".to_owned())];
        for text in [
            "-qmp unix:/run/q.sock,server=on,wait=off",
            "--qmp unix:/run/q.sock,server",
            "-qmp-pretty unix:path=/run/q.sock,server=on",
            "-chardev socket,id=c,path=/run/q.sock,server=on -mon chardev=c,mode=control",
            "-mon c,mode=control -chardev socket,server=on,path=/run/q.sock,id=c",
            "-chardev socket,id=c,path=/run/q.sock -qmp chardev:c",
        ] {
            assert_eq!(path_of(text), expected, "{text}");
        }
        let libvirt = "-chardev socket,id=charmonitor,fd=33,server=on -mon chardev=charmonitor,id=m,mode=control";
        assert_eq!(path_of(libvirt), [Monitor::Inherited]);
        assert_eq!(path_of("-qmp unix:a -qmp unix:b").len(), 2);
    }

    #[test]
    fn what_does_not_speak_qmp_on_a_socket_of_this_host_is_none() {
        for text in [
            "-qmp tcp:localhost:4444,server=on",
            "-qmp stdio",
            "-monitor unix:/run/human.sock,server",
            "-chardev socket,id=c,path=/p -mon chardev=c,mode=readline",
            "-mon chardev=absent,mode=control",
            "-chardev socket,id=c,host=h,port=1 -mon chardev=c,mode=control",
            "-qmp unix:",
            "-qmp",
            "",
        ] {
            assert_eq!(path_of(text), [], "{text}");
        }
    }

    #[test]
    fn memory_that_can_not_merge_is_told_by_its_cause() {
        let of = |text: &str| obstacle(&line(&format!("qemu {text}")));
        assert_eq!(of("-m 1G"), None);
        assert_eq!(of("-object memory-backend-ram,id=pc.ram,size=1G"), None);
        assert_eq!(of("-device vfio-pci,host=01:00.0"), Some("vfio"));
        assert_eq!(of("-device {\"driver\":\"vfio-pci\",\"host\":\"0000:01:00.0\"}"), Some("vfio"));
        assert_eq!(of("-mem-path /dev/hugepages"), Some("hugepages"));
        assert_eq!(of("-object memory-backend-file,id=m,size=1G,mem-path=/dev/shm/m,share=on"), Some("shared"));
        assert_eq!(of("-object memory-backend-memfd,id=m,size=1G"), Some("shared"));
        assert_eq!(
            of("-object {\"qom-type\":\"memory-backend-memfd\",\"id\":\"m\",\"share\":true}"),
            Some("shared")
        );
        let both = "-object memory-backend-ram,id=a,size=1G -object memory-backend-memfd,id=b,size=1G";
        assert_eq!(of(both), None);
    }
}
