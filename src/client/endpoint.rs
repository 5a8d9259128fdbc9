//! Parses the URL of a service.

use std::fmt;
use std::path::{Path, PathBuf};

use hyper::Uri;

/// Says why a text is not the URL of a service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// Not of a form that is understood.
    #[error("{0:?} is not the URL of a sandboxd: write http://HOST:PORT or unix:///PATH")]
    Form(String),
    /// Encrypted connections are not spoken.
    #[error("https is not spoken: put a TLS proxy or a tunnel in front, and name its http:// end")]
    Encrypted,
    /// A user or a password is in it; the text is not repeated here.
    #[error("the URL holds a user or a password: the token is the only credential")]
    Credentials,
}

/// Where a service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Place);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// `http://host:port`, with a path where a proxy wants one, without a final slash.
    Tcp(String),
    /// An absolute path.
    Unix(PathBuf),
}

impl Endpoint {
    /// Parses `http://HOST:PORT`, which may have a path, or `unix:///PATH`.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.starts_with('/') && path != "/" {
                Ok(Self(Place::Unix(PathBuf::from(path))))
            } else {
                Err(InvalidUrl::Form(text.to_owned()))
            };
        }
        // Looked for before anything else, because a password may hold characters
        // that make the rest unreadable, and must not be shown back.
        if text.contains('@') {
            return Err(InvalidUrl::Credentials);
        }
        let form = || InvalidUrl::Form(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| form())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(InvalidUrl::Encrypted),
            Some(_) | None => return Err(form()),
        }
        let authority = uri.authority().ok_or_else(form)?;
        if uri.query().is_some() || authority.host().is_empty() || text.contains('#') {
            return Err(form());
        }
        let path = uri.path().trim_end_matches('/');
        Ok(Self(Place::Tcp(format!("http://{authority}{path}"))))
    }

    /// Returns the socket's path, where the service listens on one.
    pub(super) fn socket(&self) -> Option<&Path> {
        match &self.0 {
            Place::Tcp(_) => None,
            Place::Unix(path) => Some(path),
        }
    }

    /// Returns what goes before the path of a request.
    pub(super) fn base(&self) -> &str {
        match &self.0 {
            Place::Tcp(base) => base,
            // The dialer knows the socket; a request still needs a host.
            Place::Unix(_) => "http://localhost",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Tcp(base) => f.write_str(base),
            Place::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_by_http_or_by_a_socket() {
        for (text, shown) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("http://host", "http://host"),
            ("http://proxy/boxes/", "http://proxy/boxes"),
            ("unix:///run/sandboxd.sock", "unix:///run/sandboxd.sock"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), shown);
        }
        for bad in [
            "",
            "host:80",
            "ftp://host",
            "http://",
            "http://h?x=1",
            "http://h#x",
            "unix://",
            "unix:///",
            "unix://relative",
            "http://a b",
        ] {
            assert_eq!(
                Endpoint::parse(bad),
                Err(InvalidUrl::Form(bad.to_owned())),
                "{bad}"
            );
        }
        assert_eq!(Endpoint::parse("https://h"), Err(InvalidUrl::Encrypted));
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_shown() {
        for url in [
            "http://u:hunter2@host",
            "http://u:hunter2 @host",
            "hunter2@host",
        ] {
            let error = Endpoint::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_the_url_parser(text in ".{0,40}", rest in ".{0,20}") {
            drop(Endpoint::parse(&text));
            drop(Endpoint::parse(&format!("http://{rest}")));
        }
    }
}
