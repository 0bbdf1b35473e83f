//! `VehicleControlAPI`: a car.

use super::{Fields, LongContext, error};
use crate::python::PythonRandom;
use crate::python::method::{Arguments, Default, Method, method, optional, required};
use crate::python::values::{
    Dict, Order, Raise, Value, add, add_in_place, compare, dict, divide, float_of, hashable, iterate,
    multiply, remainder, subtract, subtract_in_place,
};

pub(super) const METHODS: &[Method] = &[
    method("startEngine", &[required("ignitionMode")]),
    method("fillFuelTank", &[required("fuelAmount")]),
    method("lockDoors", &[required("unlock"), required("door")]),
    method(
        "adjustClimateControl",
        &[
            required("temperature"),
            optional("unit", Default::Str("celsius")),
            optional("fanSpeed", Default::Int(50)),
            optional("mode", Default::Str("auto")),
        ],
    ),
    method("get_outside_temperature_from_google", &[]),
    method("get_outside_temperature_from_weather_com", &[]),
    method("setHeadlights", &[required("mode")]),
    method("displayCarStatus", &[required("option")]),
    method("activateParkingBrake", &[required("mode")]),
    method("pressBrakePedal", &[required("pedalPosition")]),
    method("releaseBrakePedal", &[]),
    method("setCruiseControl", &[required("speed"), required("activate"), required("distanceToNextVehicle")]),
    method("get_current_speed", &[]),
    method("display_log", &[required("messages")]),
    method("estimate_drive_feasibility_by_mileage", &[required("distance")]),
    method("liter_to_gallon", &[required("liter")]),
    method("gallon_to_liter", &[required("gallon")]),
    method("estimate_distance", &[required("cityA"), required("cityB")]),
    method("get_zipcode_based_on_city", &[required("city")]),
    method("set_navigation", &[required("destination")]),
    method("check_tire_pressure", &[]),
    method("find_nearest_tire_shop", &[]),
];

const SEED: u64 = 141_053;
const TANK: i64 = 50;

const ZIP_CODES: [(&str, &str); 11] = [
    ("Rivermist", "83214"),
    ("Stonebrook", "74532"),
    ("Maplecrest", "56108"),
    ("Silverpine", "62947"),
    ("Shadowridge", "71354"),
    ("Sunset Valley", "83462"),
    ("Oakendale", "47329"),
    ("Willowbend", "52013"),
    ("Crescent Hollow", "69238"),
    ("Autumnville", "51479"),
    ("San Francisco", "94016"),
];

const DISTANCES: [(&str, &str, f64); 12] = [
    ("83214", "74532", 750.0),
    ("56108", "62947", 320.0),
    ("71354", "83462", 450.0),
    ("47329", "52013", 290.0),
    ("69238", "51479", 630.0),
    ("94016", "83214", 980.0),
    ("94016", "94704", 600.0),
    ("94704", "08540", 2550.0),
    ("94016", "08540", 1950.0),
    ("62947", "47329", 1053.0),
    ("94016", "62947", 780.0),
    ("74532", "94016", 880.0),
];

/// Key of each tire's pressure, in both the state and the scenario, and the default pressure.
const TIRES: [(&str, f64); 4] = [
    ("frontLeftTirePressure", 32.0),
    ("frontRightTirePressure", 32.0),
    ("rearLeftTirePressure", 30.0),
    ("rearRightTirePressure", 30.0),
];

#[derive(Clone, Debug)]
pub(super) struct Vehicle {
    random: PythonRandom,
    fuel: Value,
    voltage: Value,
    engine: Value,
    unlocked: Value,
    doors: Dict,
    temperature: Value,
    fan: Value,
    mode: Value,
    humidity: Value,
    headlights: Value,
    parking_brake: Value,
    parking_force: Value,
    slope: Value,
    pedal: Value,
    pedal_force: Value,
    distance: Value,
    cruise: Value,
    destination: Value,
    tires: [Value; 4],
    is_long: bool,
}

fn is(value: &Value, word: &str) -> bool {
    value.as_str() == Some(word)
}

impl Vehicle {
    pub(super) fn new(scenario: &Dict, long: Option<&LongContext>) -> Self {
        let fields = Fields(scenario);
        let doors = fields.dict_or("doorStatus", || {
            ["driver", "passenger", "rear_left", "rear_right"]
                .map(|door| (door.into(), "unlocked".into()))
                .into_iter()
                .collect()
        });
        let locked = doors.values().filter(|status| is(status, "locked")).count();
        Self {
            random: PythonRandom::new(fields.seed(SEED)),
            fuel: fields.value("fuelLevel", 0.0),
            voltage: fields.value("batteryVoltage", 12.6),
            engine: fields.value("engineState", "stopped"),
            unlocked: Value::Int(4 - i64::try_from(locked).unwrap_or(4)),
            doors,
            temperature: fields.value("acTemperature", 25.0),
            fan: fields.value("fanSpeed", 50i64),
            mode: fields.value("acMode", "auto"),
            humidity: fields.value("humidityLevel", 50.0),
            headlights: fields.value("headLightStatus", "off"),
            parking_brake: fields.value("parkingBrakeStatus", "released"),
            parking_force: fields.value("parkingBrakeForce", 0.0),
            slope: fields.value("slopeAngle", 0.0),
            pedal: fields.value("brakePedalStatus", "released"),
            pedal_force: fields.value("brakePedalForce", 0.0),
            distance: fields.value("distanceToNextVehicle", 50.0),
            cruise: fields.value("cruiseStatus", "inactive"),
            destination: fields.value("destination", "None"),
            tires: TIRES.map(|(name, pressure)| fields.value(name, pressure)),
            is_long: long.is_some(),
        }
    }

    pub(super) fn state(&self) -> Vec<(&'static str, Value)> {
        let mut state = vec![
            ("fuelLevel", self.fuel.clone()),
            ("batteryVoltage", self.voltage.clone()),
            ("engine_state", self.engine.clone()),
            ("remainingUnlockedDoors", self.unlocked.clone()),
            ("doorStatus", self.doors.clone().into()),
            ("acTemperature", self.temperature.clone()),
            ("fanSpeed", self.fan.clone()),
            ("acMode", self.mode.clone()),
            ("humidityLevel", self.humidity.clone()),
            ("headLightStatus", self.headlights.clone()),
            ("parkingBrakeStatus", self.parking_brake.clone()),
            ("brakePedalStatus", self.pedal.clone()),
            ("distanceToNextVehicle", self.distance.clone()),
            ("cruiseStatus", self.cruise.clone()),
            ("destination", self.destination.clone()),
            ("long_context", self.is_long.into()),
        ];
        state.extend(TIRES.iter().zip(&self.tires).map(|((name, _), pressure)| (*name, pressure.clone())));
        state
    }

    pub(super) fn call(
        &mut self,
        method: &str,
        arguments: Arguments,
        long: Option<&LongContext>,
    ) -> Result<Value, Raise> {
        match method {
            "startEngine" => self.start(arguments.take()),
            "fillFuelTank" => self.fill(arguments.take()),
            "lockDoors" => self.lock(arguments.take()),
            "adjustClimateControl" => self.climate(arguments.take()),
            "get_outside_temperature_from_google" => {
                let mut weather = long.map(|long| long.weather.clone()).unwrap_or_default();
                weather.insert("outsideTemperature", self.random.uniform(-10.0, 40.0));
                Ok(weather.into())
            }
            "get_outside_temperature_from_weather_com" => Ok(dict([("error", 404i64.into())])),
            "setHeadlights" => {
                let [mode] = arguments.take();
                if !["on", "off", "auto"].iter().any(|known| is(&mode, known)) {
                    return Ok(error("Invalid headlight mode."));
                }
                self.headlights = if is(&mode, "on") { "on" } else { "off" }.into();
                Ok(dict([("headlightStatus", self.headlights.clone())]))
            }
            "displayCarStatus" => Ok(self.display(arguments.take(), long)),
            "activateParkingBrake" => Ok(self.park(arguments.take(), long)),
            "pressBrakePedal" => self.press(arguments.take()),
            "releaseBrakePedal" => Ok(self.release()),
            "setCruiseControl" => self.cruise_control(arguments.take()),
            "get_current_speed" => Ok(dict([("currentSpeed", self.random.uniform(0.0, 120.0).into())])),
            "display_log" => {
                let [messages] = arguments.take();
                Ok(dict([("log", messages)]))
            }
            "estimate_drive_feasibility_by_mileage" => {
                let [distance] = arguments.take();
                let range = multiply(&self.fuel, &Value::Float(20.0))?;
                Ok(dict([("canDrive", (!compare(Order::Less, &range, &distance)?).into())]))
            }
            "liter_to_gallon" => {
                let [liter] = arguments.take();
                Ok(dict([("gallon", multiply(&liter, &Value::Float(0.264_172))?)]))
            }
            "gallon_to_liter" => {
                let [gallon] = arguments.take();
                Ok(dict([("liter", multiply(&gallon, &Value::Float(3.785_41))?)]))
            }
            "estimate_distance" => Ok(distance(arguments.take(), long)),
            "get_zipcode_based_on_city" => {
                let [city] = arguments.take();
                let found = ZIP_CODES.iter().find(|(name, _)| is(&city, name));
                Ok(dict([("zipcode", found.map_or("00000", |(_, code)| code).into())]))
            }
            "set_navigation" => {
                let [destination] = arguments.take();
                self.destination = destination;
                Ok(dict([("status", add(&"Navigating to ".into(), &self.destination)?)]))
            }
            "check_tire_pressure" => self.check_tires(long),
            _ => Ok(dict([("shopLocation", "456 Oakwood Avenue, Rivermist, 83214".into())])),
        }
    }

    fn start(&mut self, [mode]: [Value; 1]) -> Result<Value, Raise> {
        if is(&mode, "STOP") {
            self.engine = "stopped".into();
        }
        if compare(Order::Greater, &self.unlocked, &Value::Int(0))? {
            let open = self.doors.iter().filter(|(_, status)| is(status, "unlocked"));
            let open: Vec<String> = open.map(|(door, _)| door.to_string()).collect();
            return Ok(error(format!(
                "All doors must be locked before starting the engine. Here are the unlocked doors: {}",
                open.join(", ")
            )));
        }
        if !is(&self.pedal, "pressed") {
            return Ok(error("Brake pedal needs to be pressed when starting the engine."));
        }
        if self.pedal_force != Value::Float(1000.0) {
            return Ok(error("Must press the brake fully before starting the engine."));
        }
        if compare(Order::Less, &self.fuel, &Value::Float(0.0))? {
            return Ok(error("Fuel tank is empty."));
        }
        if !is(&mode, "START") {
            return Ok(error("Invalid ignition mode."));
        }
        self.engine = "running".into();
        Ok(dict([
            ("engineState", self.engine.clone()),
            ("fuelLevel", self.fuel.clone()),
            ("batteryVoltage", self.voltage.clone()),
        ]))
    }

    fn fill(&mut self, [amount]: [Value; 1]) -> Result<Value, Raise> {
        if compare(Order::Less, &amount, &Value::Int(0))? {
            return Ok(error("Fuel amount cannot be negative."));
        }
        let level = add(&self.fuel, &amount)?;
        if compare(Order::Greater, &level, &Value::Int(TANK))? {
            return Ok(error("Cannot fill gas above the tank capacity."));
        }
        if compare(Order::Less, &level, &Value::Float(0.0))? {
            return Ok(error("Fuel tank is empty. Min fuel level is 0 gallons."));
        }
        self.fuel = level;
        Ok(dict([("fuelLevel", self.fuel.clone())]))
    }

    fn lock(&mut self, [unlock, doors]: [Value; 2]) -> Result<Value, Raise> {
        let unlocks = unlock.is_true();
        let status = if unlocks { "unlocked" } else { "locked" };
        for door in iterate(&doors)? {
            hashable(&door)?;
            let known = self.doors.get_mut(&door).ok_or_else(|| Raise::key_error(&door))?;
            if is(known, status) {
                continue;
            }
            *known = status.into();
            let change = if unlocks { add_in_place } else { subtract_in_place };
            self.unlocked = change(&self.unlocked, &Value::Int(1))?;
        }
        Ok(dict([("lockStatus", status.into()), ("remainingUnlockedDoors", self.unlocked.clone())]))
    }

    fn climate(&mut self, [temperature, unit, fan, mode]: [Value; 4]) -> Result<Value, Raise> {
        let inside = compare(Order::LessEqual, &Value::Int(0), &fan)?
            && compare(Order::LessEqual, &fan, &Value::Int(100))?;
        if !inside {
            return Ok(error("Fan speed must be between 0 and 100."));
        }
        self.temperature = temperature.clone();
        if is(&unit, "fahrenheit") {
            let above = subtract(&temperature, &Value::Int(32))?;
            self.temperature = divide(&multiply(&above, &Value::Int(5))?, &Value::Int(9))?;
        }
        self.fan = fan;
        self.mode = mode;
        Ok(dict([
            ("currentACTemperature", temperature),
            ("climateMode", self.mode.clone()),
            ("humidityLevel", self.humidity.clone()),
        ]))
    }

    fn display(&self, [option]: [Value; 1], long: Option<&LongContext>) -> Value {
        let mut status = Dict::new();
        if let Some(long) = long {
            status.insert("metadata", long.car.clone());
        }
        let shown: &[(&str, &Value)] = match option.as_str().unwrap_or_default() {
            "fuel" => &[("fuelLevel", &self.fuel)],
            "battery" => &[("batteryVoltage", &self.voltage)],
            "doors" => {
                status.insert("doorStatus", self.doors.clone());
                &[]
            }
            "climate" => &[
                ("currentACTemperature", &self.temperature),
                ("fanSpeed", &self.fan),
                ("climateMode", &self.mode),
                ("humidityLevel", &self.humidity),
            ],
            "headlights" => &[("headlightStatus", &self.headlights)],
            "parkingBrake" => &[
                ("parkingBrakeStatus", &self.parking_brake),
                ("parkingBrakeForce", &self.parking_force),
                ("slopeAngle", &self.slope),
            ],
            "brakePedal" => &[("brakePedalStatus", &self.pedal), ("brakePedalForce", &self.pedal_force)],
            "engine" => &[("engineState", &self.engine)],
            _ => {
                status.insert("error", "Invalid option");
                &[]
            }
        };
        for (name, value) in shown {
            status.insert(*name, (*value).clone());
        }
        status.into()
    }

    fn park(&mut self, [mode]: [Value; 1], long: Option<&LongContext>) -> Value {
        let (status, force) = match mode.as_str() {
            Some("engage") => ("engaged", 500.0),
            Some("release") => ("released", 0.0),
            _ => return error("Invalid mode"),
        };
        self.parking_brake = status.into();
        self.parking_force = force.into();
        self.slope = 10.0.into();
        let mut result = Dict::new();
        if let Some(long) = long {
            result.insert("parkingBrakeInstruction", long.parking_brake.clone());
        }
        result.insert("parkingBrakeStatus", status);
        result.insert("_parkingBrakeForce", force);
        result.insert("_slopeAngle", 10.0);
        result.into()
    }

    fn press(&mut self, [position]: [Value; 1]) -> Result<Value, Raise> {
        let inside = compare(Order::LessEqual, &Value::Int(0), &position)?
            && compare(Order::LessEqual, &position, &Value::Int(1))?;
        if !inside {
            return Ok(error("Pedal position must be between 0 and 1."));
        }
        if position == Value::Int(0) {
            return Ok(self.release());
        }
        self.pedal = "pressed".into();
        self.pedal_force = multiply(&position, &Value::Int(1000))?;
        let force = float_of(&self.pedal_force)?;
        Ok(dict([("brakePedalStatus", "pressed".into()), ("brakePedalForce", force.into())]))
    }

    fn release(&mut self) -> Value {
        self.pedal = "released".into();
        self.pedal_force = 0.0.into();
        dict([("brakePedalStatus", "released".into()), ("brakePedalForce", 0.0.into())])
    }

    fn cruise_control(&mut self, [speed, activate, distance]: [Value; 3]) -> Result<Value, Raise> {
        let distance = float_of(&distance)?;
        let speed = float_of(&speed)?;
        if is(&self.engine, "stopped") {
            return Ok(error("Start the engine before activating the cruise control."));
        }
        self.distance = distance.into();
        if activate.is_true() && (!(0.0..=120.0).contains(&speed) || remainder(speed, 5.0) != 0.0) {
            return Ok(error("Invalid speed"));
        }
        self.cruise = if activate.is_true() { "active" } else { "inactive" }.into();
        Ok(dict([
            ("cruiseStatus", self.cruise.clone()),
            ("currentSpeed", speed.into()),
            ("distanceToNextVehicle", distance.into()),
        ]))
    }

    fn check_tires(&self, long: Option<&LongContext>) -> Result<Value, Raise> {
        let [first, others @ ..] = &self.tires;
        let total = others.iter().try_fold(first.clone(), |total, pressure| add(&total, pressure))?;
        let mean = divide(&total, &Value::Int(4))?;
        let healthy = compare(Order::LessEqual, &Value::Int(30), &mean)?
            && compare(Order::LessEqual, &mean, &Value::Int(35))?;
        let mut status = Dict::new();
        for ((name, _), pressure) in TIRES.iter().zip(&self.tires) {
            status.insert(*name, pressure.clone());
        }
        status.insert("healthy_tire_pressure", healthy);
        status.insert("car_info", long.map_or(Value::Dict(Dict::new()), |long| long.car.clone()));
        Ok(status.into())
    }
}

fn distance([from, to]: [Value; 2], long: Option<&LongContext>) -> Value {
    let joins =
        |one: &str, other: &str| (is(&from, one) && is(&to, other)) || (is(&from, other) && is(&to, one));
    let mut result = Dict::new();
    match DISTANCES.iter().find(|(one, other, _)| joins(one, other)) {
        Some((_, _, distance)) => result.insert("distance", *distance),
        None => result.insert("error", "distance not found in database."),
    }
    if let Some(long) = long {
        result.insert("intermediaryCities", long.cities.clone());
    }
    result.into()
}
