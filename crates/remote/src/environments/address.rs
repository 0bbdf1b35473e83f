//! Server addresses in settings.

use reqwest::Url;

use super::error::ServerError;

pub(crate) fn addresses(urls: &[String]) -> Result<Vec<Url>, ServerError> {
    if urls.is_empty() {
        return Err(ServerError::setting(
            "urls",
            "is empty; give the addresses of the servers, such as [\"http://127.0.0.1:8000\"]",
        ));
    }
    urls.iter().enumerate().map(|(index, url)| address(index, url)).collect()
}

fn address(index: usize, url: &str) -> Result<Url, ServerError> {
    let wrong = |reason: &str| {
        ServerError::setting("urls", format!("number {index} {reason}, such as http://127.0.0.1:8000"))
    };
    let url = Url::parse(url.trim_end_matches('/')).map_err(|_| wrong("is not an address"))?;
    turnwise_settings::check_address(url.as_str())
        .map_err(|error| ServerError::setting("urls", format!("number {index} {error}")))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has a query; give an address without one"));
    }
    if url.scheme() == "https" && !cfg!(feature = "tls") {
        return Err(wrong("is https, which needs a build of turnwise-remote with its feature `tls`"));
    }
    Ok(url)
}

pub(crate) fn below(url: &Url, path: &str) -> String {
    format!("{}/{path}", url.as_str().trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::api_key;

    fn refusal(url: &str) -> String {
        addresses(&[url.to_owned()]).unwrap_err().to_string()
    }

    #[test]
    fn addresses_are_checked_and_never_repeated() {
        let url = addresses(&["http://127.0.0.1:8000/env/".to_owned()]).unwrap().remove(0);
        assert_eq!(below(&url, "ws"), "http://127.0.0.1:8000/env/ws");
        assert!(addresses(&[]).unwrap_err().to_string().contains("env.urls: is empty"));
        for (url, expected) in [
            ("secret-host", "number 0 is not an address"),
            ("ftp://secret-host", "must start with http:// or https://"),
            ("http://me:secret-word@host", "must hold no user name or password"),
            ("http://host/?key=secret", "has a query"),
        ] {
            let error = refusal(url);
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_missing_key_names_its_setting() {
        let error = api_key("TURNWISE_NO_SUCH_VARIABLE").map_err(ServerError::from).unwrap_err().to_string();
        assert!(
            error.starts_with("env.api_key_env: ") && error.contains("TURNWISE_NO_SUCH_VARIABLE"),
            "{error}"
        );
    }
}
