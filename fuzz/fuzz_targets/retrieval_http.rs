#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| turnwise_fuzz::parsers::retrieval_http(data));
