// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logins that `docker login` and `podman login` have stored. Logins in credential helpers are not found.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pando_oci::{Credentials, ImageName};
use serde_json::Value;
use std::env;
use std::path::{Path, PathBuf};

/// The stored login for the registry of an image.
pub(crate) fn find(name: &ImageName) -> Option<Credentials> {
    files().iter().find_map(|file| of_file(&std::fs::read(file).ok()?, name))
}

/// The files of podman, then docker's.
fn files() -> Vec<PathBuf> {
    let variable = |name: &str, below: &str| env::var_os(name).map(|value| Path::new(&value).join(below));
    let podman = env::var_os("REGISTRY_AUTH_FILE").map(PathBuf::from);
    let runtime = variable("XDG_RUNTIME_DIR", "containers/auth.json");
    let configuration = variable("XDG_CONFIG_HOME", "containers/auth.json").or_else(|| variable("HOME", ".config/containers/auth.json"));
    let docker = variable("DOCKER_CONFIG", "config.json").or_else(|| variable("HOME", ".docker/config.json"));
    [podman, runtime, configuration, docker].into_iter().flatten().collect()
}

/// The login in the text of a file. podman also stores logins of single repositories, which come first.
fn of_file(text: &[u8], name: &ImageName) -> Option<Credentials> {
    let read: Value = serde_json::from_slice(text).ok()?;
    let reference = name.reference();
    let (registry, resolved) = (reference.registry(), reference.resolve_registry());
    let mut repository = format!("{registry}/{}", reference.repository());
    let mut keys = Vec::new();
    while let Some((parent, _)) = repository.rsplit_once('/') {
        let parent = parent.len();
        keys.push(repository.clone());
        repository.truncate(parent);
    }
    keys.extend([registry.into(), resolved.into(), format!("https://{resolved}/v1/"), format!("https://{registry}")]);
    let encoded = keys.iter().find_map(|key| read["auths"][key]["auth"].as_str())?;
    let (user, password) =
        String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?.split_once(':').map(|(user, password)| (user.into(), password.into()))?;
    Some(Credentials { user, password })
}

#[cfg(test)]
mod tests {
    use super::of_file;

    #[test]
    fn logins_are_found_as_docker_and_podman_store_them() {
        // a:b, c:d, e:f:g
        let text =
            br#"{"auths": {"example.org": {"auth": "YTpi"}, "example.org/team": {"auth": "Yzpk"}, "localhost:5000": {"auth": "ZTpmOmc="},
            "broken.example": {"auth": "?"}, "helper.example": {}}, "credsStore": "desktop"}"#;
        let login =
            |name: &str| of_file(text, &name.parse().expect("it is a name")).map(|login| format!("{} {}", login.user, login.password));
        assert_eq!(login("example.org/app"), Some("a b".into()));
        assert_eq!(login("example.org/team/app:v1"), Some("c d".into()));
        assert_eq!(login("localhost:5000/app"), Some("e f:g".into()));
        for name in ["app", "other.example/app", "broken.example/app", "helper.example/app"] {
            assert_eq!(login(name), None, "{name}");
        }
        assert_eq!(of_file(b"{", &"app".parse().expect("it is a name")), None);
    }
}
