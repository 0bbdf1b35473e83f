//! Server addresses in settings.

use std::net::Ipv6Addr;

use thiserror::Error;

/// Why an address is invalid, phrased to follow the setting's name. The message omits the address,
/// which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// The scheme is not `http` or `https`.
    #[error("must start with http:// or https://")]
    Scheme,
    /// The address contains a user name or password, which would appear in logs.
    #[error("must hold no user name or password; `api_key_env` names the environment variable of a key")]
    Credentials,
    /// The host or port is invalid.
    #[error("must name a server, such as http://127.0.0.1:8000")]
    Server,
}

/// Accepts `http` and `https` server addresses without credentials.
///
/// # Errors
/// Returns the first problem.
pub fn check_address(address: &str) -> Result<(), AddressError> {
    let rest = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"));
    let rest = rest.ok_or(AddressError::Scheme)?;
    // An `@` marks credentials only before the path; clients treat a backslash as a slash.
    let server = &rest[..rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len())];
    if server.contains('@') {
        return Err(AddressError::Credentials);
    }
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (server, None),
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains(|letter: char| letter == ':' || letter.is_whitespace()),
    };
    let is_number =
        |port: &str| port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_port = port.is_none_or(|port| port.is_empty() || is_number(port));
    if is_host && is_port { Ok(()) } else { Err(AddressError::Server) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers_are_taken() {
        for address in [
            "http://127.0.0.1:8000",
            "https://api.example.com/v1/",
            "http://node-7_a:30000/@team/mcp?user=a@b",
            "http://[::1]:8000/v1",
            "http://[fe80::1]",
            "http://host:/v1",
        ] {
            assert_eq!(check_address(address), Ok(()), "{address}");
        }
    }

    #[test]
    fn what_is_no_address_of_a_server_is_refused_without_repeating_it() {
        for (address, expected) in [
            ("", AddressError::Scheme),
            ("secret-host:8000", AddressError::Scheme),
            ("ftp://secret-host", AddressError::Scheme),
            ("http://me:secret@host", AddressError::Credentials),
            ("https://secret@host/v1", AddressError::Credentials),
            ("http://me:secret@[::1]:8000", AddressError::Credentials),
            ("http://", AddressError::Server),
            ("http:///secret", AddressError::Server),
            ("http://:8000", AddressError::Server),
            ("http://secret host", AddressError::Server),
            ("http://host:secret", AddressError::Server),
            ("http://host:80000", AddressError::Server),
            ("http://host:+80", AddressError::Server),
            ("http://::1:8000", AddressError::Server),
            ("http://[secret]:8000", AddressError::Server),
            ("http://me:sec/ret@host", AddressError::Server),
        ] {
            let error = check_address(address).unwrap_err();
            assert_eq!(error, expected, "{address}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
