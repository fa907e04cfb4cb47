/* Numbering and routes of the C600: see target.h. Pure functions of their arguments. */
#include "target/target.h"

#include <stdlib.h>

struct physical_tile target_physical(struct logical_tile t) {
    int pair = t.n / 2;
    int lane = t.n & 1;
    int block = pair / TARGET_ROWS;
    int r = pair % TARGET_ROWS;
    int row = (block & 1) != 0 ? TARGET_ROWS - 1 - r : r;
    return (struct physical_tile){(uint16_t)(64 * row + 4 * (block / 2) + (block & 1) + 2 * lane)};
}

struct logical_tile target_logical(struct physical_tile t) {
    int row = target_row(t);
    int sub = target_sub(t);
    int block = 2 * target_column(t) + (sub & 1);
    int r = (block & 1) != 0 ? TARGET_ROWS - 1 - row : row;
    return (struct logical_tile){(uint16_t)(2 * (block * TARGET_ROWS + r) + (sub >> 1))};
}

int target_row(struct physical_tile t) {
    return t.n / 64;
}

int target_column(struct physical_tile t) {
    return t.n / 4 % 16;
}

int target_sub(struct physical_tile t) {
    return t.n % 4;
}

struct physical_tile target_partner(struct physical_tile t) {
    return (struct physical_tile){t.n ^ 2};
}

int target_element(uint32_t addr) {
    if (addr < TARGET_MEM_BASE || addr >= TARGET_MEM_END) {
        return -1;
    }
    if (addr < TARGET_REGION1) {
        return (int)((addr - TARGET_MEM_BASE) / TARGET_ELEMENT_BYTES);
    }
    uint32_t pair = (addr - TARGET_REGION1) / (2 * TARGET_ELEMENT_BYTES);
    return (int)(13 + 2 * pair + (addr >> 3 & 1));
}

/* Column slot: both halves of the chip fold onto eight slots across the spine. */
static int route_fold(struct physical_tile t) {
    int column = target_column(t);
    return column < 8 ? column : 15 - column;
}

static int route_half(struct physical_tile t) {
    return target_column(t) / 8;
}

static int route_displacement(struct physical_tile s, struct physical_tile d) {
    int slot = route_fold(s) + (route_half(s) ^ (s.n & 1));
    bool match = route_half(d) == (d.n & 1);
    int lane = target_sub(d) < 2 ? (match ? 1 : 5) : (match ? 2 : 4);
    return 6 * (route_fold(d) - slot) + lane;
}

int target_route_direction(struct physical_tile source, struct physical_tile destination) {
    return route_displacement(source, destination) < 1 ? 2 : 1;
}

int target_route_time(struct physical_tile source, struct physical_tile destination) {
    int k = route_half(destination) != 0 ? 3 : 5;
    int q = route_half(source) != 0 && route_half(destination) == 0 ? 14 : 30;
    return abs(route_displacement(source, destination)) +
           2 * (target_row(source) - target_row(destination)) +
           k * (route_fold(source) - route_fold(destination)) - q;
}

int target_arrival_delay(struct physical_tile d) {
    return 52 + 2 * target_row(d);
}

struct physical_tile target_host_owner(struct physical_tile t) {
    return (struct physical_tile){t.n & 0x3d};
}

int target_host_grant_bit(struct physical_tile t) {
    return 2 * (t.n / 64) + (t.n >> 1 & 1);
}

uint32_t target_host_mux(struct physical_tile t) {
    return 0x600u + (t.n & 0x3du);
}
