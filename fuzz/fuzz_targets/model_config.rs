#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| turnwise_fuzz::parsers::model_config(data));
