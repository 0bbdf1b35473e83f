//! Reads and writes the `vision_config` of `config.json`, and `preprocessor_config.json`.

use std::path::Path;

use serde_json::{Value, json};

use super::config_json::Entries;
use crate::pictures::{ImageSettings, Pictures, TowerKind, VisionConfig, VisionTokens};
use crate::{ModelError, files};

/// Parses the vision part of a config.
pub(super) fn parse(
    kind: TowerKind,
    root: &Entries<'_>,
    text: &Entries<'_>,
    width: usize,
) -> Result<VisionConfig, ModelError> {
    let Some(of) = root.object("vision_config")? else {
        return Err(root.error("vision_config", "is missing"));
    };
    let activation = activation(kind);
    if let Some(act) = of.get("hidden_act").filter(|act| *act != activation) {
        return Err(of.error("hidden_act", format!("`{act}` is not supported; supported: {activation}")));
    }
    if let Some(rotary) = of.get("rope_parameters")
        && rotary.get("rope_theta").and_then(Value::as_f64).is_some_and(|theta| theta != 10_000.0)
    {
        return Err(
            of.error("rope_parameters", "another rope_theta than 10000 is not supported in the tower")
        );
    }
    // Older folders have `in_chans`.
    let channels = of.whole("in_channels")?.or(of.whole("in_chans")?).unwrap_or(3);
    if channels != 3 {
        return Err(of.error("in_channels", format!("{channels} is not supported; supported: 3")));
    }
    let out = match kind {
        TowerKind::Qwen2Vl => "hidden_size",
        TowerKind::Qwen25Vl => "out_hidden_size",
    };
    if let Some(found) = of.whole(out)?
        && found != width
    {
        return Err(of.error(out, format!("{found} is not hidden_size = {width} of the decoder")));
    }
    let (rotary, older) = (text.object("rope_parameters")?, text.object("rope_scaling")?);
    let sections = rotary.or(older).and_then(|rotary| wholes(rotary.get("mrope_section")));
    let Some(Ok(mrope_section)) = sections.map(<[usize; 3]>::try_from) else {
        return Err(text.error("rope_scaling", "has no `mrope_section` of three numbers"));
    };
    let fullatt_block_indexes = match of.get("fullatt_block_indexes") {
        _ if kind == TowerKind::Qwen2Vl => Vec::new(),
        None => vec![7, 15, 23, 31],
        value => wholes(value)
            .ok_or_else(|| of.error("fullatt_block_indexes", "is not a list of whole numbers"))?,
    };
    let token = |key: &str, usual: u32| {
        let id = root.whole(key)?.map_or(Ok(usual), u32::try_from);
        id.map_err(|_| root.error(key, "is not a token id"))
    };
    let or = |key: &str, usual: usize| Ok::<_, ModelError>(of.whole(key)?.unwrap_or(usual));
    let (hidden_size, intermediate_size) = match kind {
        TowerKind::Qwen2Vl => {
            let hidden = or("embed_dim", 1280)?;
            (hidden, (hidden as f64 * of.number("mlp_ratio")?.unwrap_or(4.0)) as usize)
        }
        TowerKind::Qwen25Vl => (of.need_whole("hidden_size")?, or("intermediate_size", 3420)?),
    };
    Ok(VisionConfig {
        kind,
        depth: or("depth", 32)?,
        hidden_size,
        intermediate_size,
        num_heads: or("num_heads", 16)?,
        patch_size: or("patch_size", 14)?,
        temporal_patch_size: or("temporal_patch_size", 2)?,
        spatial_merge_size: or("spatial_merge_size", 2)?,
        window_size: or("window_size", 112)?,
        fullatt_block_indexes,
        initializer_range: of.number("initializer_range")?.unwrap_or(0.02),
        mrope_section,
        tokens: VisionTokens {
            start: token("vision_start_token_id", 151_652)?,
            end: token("vision_end_token_id", 151_653)?,
            image: token("image_token_id", 151_655)?,
            video: token("video_token_id", 151_656)?,
        },
        image: ImageSettings::default(),
        pictures: Pictures::default(),
    })
}

fn activation(kind: TowerKind) -> &'static str {
    match kind {
        TowerKind::Qwen2Vl => "quick_gelu",
        TowerKind::Qwen25Vl => "silu",
    }
}

fn wholes(value: Option<&Value>) -> Option<Vec<usize>> {
    let entries = value?.as_array()?.iter();
    entries.map(|entry| entry.as_u64().and_then(|entry| usize::try_from(entry).ok())).collect()
}

pub(super) fn write(config: &VisionConfig, width: usize, value: &mut Value) {
    let mut tower = json!({
        "depth": config.depth,
        "hidden_act": activation(config.kind),
        "in_channels": 3,
        "initializer_range": config.initializer_range,
        "num_heads": config.num_heads,
        "patch_size": config.patch_size,
        "spatial_merge_size": config.spatial_merge_size,
        "temporal_patch_size": config.temporal_patch_size,
    });
    match config.kind {
        TowerKind::Qwen2Vl => {
            tower["model_type"] = json!("qwen2_vl");
            tower["embed_dim"] = json!(config.hidden_size);
            tower["mlp_ratio"] = json!(config.intermediate_size / config.hidden_size.max(1));
            tower["hidden_size"] = json!(width);
        }
        TowerKind::Qwen25Vl => {
            tower["model_type"] = json!("qwen2_5_vl");
            tower["hidden_size"] = json!(config.hidden_size);
            tower["intermediate_size"] = json!(config.intermediate_size);
            tower["out_hidden_size"] = json!(width);
            tower["window_size"] = json!(config.window_size);
            tower["fullatt_block_indexes"] = json!(config.fullatt_block_indexes);
        }
    }
    value["vision_config"] = tower;
    value["rope_scaling"] = json!({ "type": "mrope", "mrope_section": config.mrope_section });
    value["vision_start_token_id"] = json!(config.tokens.start);
    value["vision_end_token_id"] = json!(config.tokens.end);
    value["image_token_id"] = json!(config.tokens.image);
    value["video_token_id"] = json!(config.tokens.video);
}

pub(super) fn processor(config: &VisionConfig) -> Value {
    let ImageSettings { min_pixels, max_pixels, mean, std } = &config.image;
    let class = match config.kind {
        TowerKind::Qwen2Vl => "Qwen2VLProcessor",
        TowerKind::Qwen25Vl => "Qwen2_5_VLProcessor",
    };
    json!({
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": class,
        "min_pixels": min_pixels,
        "max_pixels": max_pixels,
        "size": { "shortest_edge": min_pixels, "longest_edge": max_pixels },
        "patch_size": config.patch_size,
        "temporal_patch_size": config.temporal_patch_size,
        "merge_size": config.spatial_merge_size,
        "image_mean": mean,
        "image_std": std,
        "do_convert_rgb": true,
        "do_resize": true,
        "do_rescale": true,
        "do_normalize": true,
        "resample": 3,
    })
}

pub(super) fn read_processor(path: &Path, config: &mut VisionConfig) -> Result<(), ModelError> {
    if !path.exists() {
        return Ok(());
    }
    let value: Value =
        serde_json::from_slice(&files::read(path)?).map_err(|error| ModelError::file(path, error))?;
    let whole =
        |value: Option<&Value>| value.and_then(Value::as_u64).and_then(|value| usize::try_from(value).ok());
    let size = |edge: &str, key: &str| {
        whole(value.get("size").and_then(|size| size.get(edge))).or_else(|| whole(value.get(key)))
    };
    for (key, own) in [
        ("patch_size", config.patch_size),
        ("temporal_patch_size", config.temporal_patch_size),
        ("merge_size", config.spatial_merge_size),
    ] {
        if let Some(found) = whole(value.get(key)).filter(|&found| found != own) {
            let reason = format!("{key} = {found}, but vision_config of config.json has {own}");
            return Err(ModelError::file(path, reason));
        }
    }
    let image = &mut config.image;
    image.min_pixels = size("shortest_edge", "min_pixels").unwrap_or(image.min_pixels);
    image.max_pixels = size("longest_edge", "max_pixels").unwrap_or(image.max_pixels);
    for (key, to) in [("image_mean", &mut image.mean), ("image_std", &mut image.std)] {
        let Some(found) = value.get(key) else { continue };
        let numbers: Option<Vec<f64>> =
            found.as_array().and_then(|entries| entries.iter().map(Value::as_f64).collect());
        let Some(Ok(numbers)) = numbers.map(<[f64; 3]>::try_from) else {
            return Err(ModelError::file(path, format!("{key}: is not a list of three numbers")));
        };
        *to = numbers;
    }
    Ok(())
}
