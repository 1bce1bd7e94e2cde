//! Scripts of packages as a hostile user sees them: links that were planted before an installation or a purge lead root to no
//! other file.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::own::on_own_host;
use crate::support::program::PROGRAM;

/// Plants links of another user, runs a script and compares the files that they lead to. Its arguments: how they are planted, the
/// program, the configuration of systemd-tmpfiles, the script's text and the script's own arguments. What would change the host's groups and
/// units is a stand-in. `DPKG_ROOT` is empty, as in an ordinary installation.
const STAGE: &str = r#"set -eu
planted=$1 program=$2 tmpfiles=$3 script=$4
shift 4
mount -t tmpfs own /mnt
mkdir /mnt/bin /mnt/victim /mnt/victim/history
cp "$program" /mnt/bin/ksmith
cp "$tmpfiles" /mnt/ksmith.conf
for command in systemctl deb-systemd-helper deb-systemd-invoke systemd-sysusers groupdel py3compile py3clean; do
    printf '#!/bin/sh\nexit 0\n' > /mnt/bin/$command
done
printf '#!/bin/sh\nexec /usr/bin/systemd-tmpfiles --create /mnt/ksmith.conf\n' > /mnt/bin/systemd-tmpfiles
chmod 755 /mnt/bin/*
export PATH=/mnt/bin:$PATH DPKG_ROOT=
cp /etc/group /mnt/group
printf 'ksmith:x:64101:\nksmith-view:x:64102:\n' >> /mnt/group
mount --bind /mnt/group /etc/group
for file in undo.json undo.json.new undo.lock lock history.db history/history.db; do echo "$file" > "/mnt/victim/$file"; done
for place in /run /tmp /var/lib /var/log /etc/systemd/system; do
    [ ! -d $place ] || mount -t tmpfs -o mode=1777 own $place
done
mkdir -p /run/systemd/system
for place in /run/ksmith /tmp/ksmith /var/lib/ksmith /var/log/ksmith /etc/systemd/system/ksmith.service.d /etc/systemd/system/ksmith-serve.service.d; do
    if [ "$planted" = directories ]; then
        mkdir -p $place
        for file in undo.json undo.json.new undo.lock lock history history.db; do ln -s "/mnt/victim/$file" "$place/$file"; done
        chown -hR 65534:65534 $place
    else
        mkdir -p "${place%/*}"
        ln -s /mnt/victim $place
        chown -h 65534:65534 $place
    fi
done
state() { find /mnt/victim -printf '%p %y %m %U:%G %l\n' | sort; find /mnt/victim -type f | sort | xargs cat; }
state > /mnt/before
sh -c "$script" sh "$@" > /mnt/said 2>&1 || echo "the script ends with $?"
cat /mnt/said >&2
state > /mnt/after
diff /mnt/before /mnt/after
for place in /run/ksmith /var/lib/ksmith; do [ ! -e $place ] && [ ! -h $place ] || echo "$place stays"; done
"#;

fn packaged(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(file)
}

/// Runs a script of a package among planted links. Returns what changed and what stays of the package's directories.
fn run_among_links(planted: &str, script: &str, arguments: &[&str]) -> String {
    let text = fs::read_to_string(packaged(script)).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--propagation=private", "sh", "-c", STAGE, "sh", planted, PROGRAM])
        .arg(packaged("tmpfiles.d/ksmith.conf").canonicalize().unwrap())
        .arg(text)
        .args(arguments)
        .output()
        .unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{script} {arguments:?} among {planted}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

#[test]
fn no_link_that_a_user_has_planted_leads_a_packages_script_to_another_file() {
    on_own_host(|| {
        for planted in ["links", "directories"] {
            for (script, arguments) in [
                ("deb/ksmith/postinst", &["configure"][..]),
                ("deb/ksmith/postinst", &["configure", "0.1.0"]),
                ("deb/ksmith/prerm", &["remove"]),
                ("deb/ksmith/postrm", &["remove"]),
                ("deb/ksmith-serve/postinst", &["configure"]),
                ("deb/ksmith-serve/prerm", &["remove"]),
                ("deb/ksmith-serve/postrm", &["purge"]),
                ("rpm/post", &["1"]),
                ("rpm/preun", &["0"]),
                ("rpm/postun", &["0"]),
            ] {
                let changed = run_among_links(planted, script, arguments);
                assert_eq!(changed, "/run/ksmith stays\n/var/lib/ksmith stays\n", "{script} among {planted}");
            }
            assert_eq!(run_among_links(planted, "deb/ksmith/postrm", &["purge"]), "", "a purge among {planted}");
        }
    });
}

#[test]
fn an_installation_from_the_archive_writes_through_no_link_in_the_place_of_a_new_file() {
    let place = tempfile::tempdir().unwrap();
    let at = |path: &str| {
        let path = place.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    fs::copy(packaged("tarball/install.sh"), at("archive/install.sh")).unwrap();
    fs::write(at("archive/tree/usr/bin/ksmith"), "program").unwrap();
    fs::write(at("archive/tree/usr/share/ksmith/scenarios/one.toml"), "").unwrap();
    fs::write(at("archive/tree/etc/ksmith.toml"), "configuration").unwrap();
    let (victim, absent) = (at("victim"), at("absent"));
    fs::write(&victim, "kept").unwrap();
    symlink(&victim, at("staged/usr/local/bin/ksmith.new")).unwrap();
    symlink(&absent, at("staged/etc/ksmith.toml")).unwrap();
    let output = Command::new("sh")
        .arg(at("archive/install.sh"))
        .arg("--destdir")
        .arg(place.path().join("staged"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    assert!(!absent.exists(), "the configuration was written elsewhere");
    let installed = place.path().join("staged/usr/local/bin/ksmith");
    assert!(fs::symlink_metadata(&installed).unwrap().is_file());
    assert_eq!(fs::read_to_string(installed).unwrap(), "program");
}
