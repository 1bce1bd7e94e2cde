mod events;
mod screens;
