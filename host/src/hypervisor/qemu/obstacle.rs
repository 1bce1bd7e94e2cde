//! Options of QEMU that keep a guest's memory from merging.

use ksmith_core::kernel::CommandLine;

/// Returns the reason why no page of this guest can merge: a device of the host pins its memory (`vfio`), or it lies in
/// memory that KSM skips.
pub(super) fn obstacle(line: &CommandLine) -> Option<&'static str> {
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
