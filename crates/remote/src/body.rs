//! Parts of HTTP that servers and services have in common: bodies with a limit, encryption.

/// Reads the rest of an answer; `None` where it is longer than `limit` bytes.
///
/// # Errors
/// The connection broke off.
pub(crate) async fn bounded_body(
    response: &mut reqwest::Response,
    limit: usize,
) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// Sets the process up for `https`, where the program has it.
pub(crate) fn install_tls() {
    #[cfg(feature = "tls")]
    // The one that is there already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
