/* What the files of the exchange scheduler share.
 *
 * A phase is held as lanes (one a tile that takes part) and shapes (one a stream). A *stream* is
 * one transfer, or several that go from one tile to the same receivers back to back: the items
 * leave without a gap, the multiplexers stay where they are, and only pointers change between two
 * of its *pieces* (streams.c). A shape is the stream's primitive at schedule offset 0: when its
 * items leave and, for every receiver (a leg), when the multiplexer must select and when item 0
 * arrives. Placing a stream means to find an offset and to add it to every event of the shape;
 * nothing else about it can move.
 *
 * A lane holds what is already placed on a tile, sparse and sorted: sends, controls, receive
 * windows, base writes. Sends may fill gaps, receives only append (fact sheet 4.1).
 */
#ifndef EXCHANGE_EXCHANGE_INTERNAL_H
#define EXCHANGE_EXCHANGE_INTERNAL_H

#include "base/vec.h"
#include "exchange/exchange.h"

#define ROW_RETURN  0x43A00000u /* br $m10 */
#define ROW_TAIL    5           /* events from the last arrival to the end of a row (2.3) */
#define SEND_LEAST  6           /* least length of a sender's primitive (2.4) */
#define BASE_WRITE  13          /* events of a put (3.1) */
#define WIDE_LEAST  128         /* words of a transfer that may be widened */
#define FORMAT_LEAD 2           /* format goes on that long before item 0 arrives (6) */

enum control_kind {                      /* also the selector of sendpic */
                    CONTROL_MUX = 0,     /* own multiplexer := value */
                    CONTROL_PAIR = 1,    /* own and, one event later, the partner's multiplexer */
                    CONTROL_POINTER = 2, /* incoming pointer := value */
                    CONTROL_FORMAT = 3,  /* item width and direction := value */
};

struct control {
    int32_t event;
    uint32_t value;
    uint8_t kind;      /* enum control_kind */
    uint8_t can_merge; /* ordinary multiplexer or ordinary pointer: may share one sendpicp (6) */
};

struct send_piece {
    int32_t start, end; /* end - start items */
    int32_t horizon;
    uint32_t item_addr;
    uint32_t elements; /* mask */
    uint8_t sctl;
    uint8_t hold; /* silent events that follow */
};

struct receive_span {
    int32_t start, end; /* arrival of item 0, receiver horizon */
    uint32_t elements;
};

struct base_write {
    int32_t start, end;
    uint8_t reg;
};

struct leg { /* one receiver of a transfer, events at offset 0 */
    uint16_t lane;
    int16_t select;    /* source window begins: X, on the late member of a pair F */
    int16_t arrival;   /* A */
    uint8_t is_late;   /* late member of a pair: writes no multiplexer */
    uint8_t direction; /* of the route; format value of a pair */
    uint8_t hold;      /* events that the idle selection is put off, see routes.c */
    uint32_t addr;     /* of the first piece */
    uint32_t elements; /* of the bytes of all pieces */
    uint32_t mux;      /* value written at `select` */
};

struct shape {
    uint16_t lane;    /* of the source */
    uint16_t partner; /* lane that is borrowed; own lane when none */
    int16_t send_start;
    uint8_t sctl;
    uint8_t is_paired;
    uint8_t form;
    uint8_t hold; /* largest of the legs */
    int32_t items;
    int32_t send_length; /* sender horizon at offset 0 */
    uint32_t elements;   /* of the source bytes of all pieces */
    uint32_t first_leg, leg_count;
    uint32_t first_piece, piece_count;
    bool has_restart; /* in a piece but the first */
};

struct piece { /* of a stream */
    uint32_t transfer;
    int32_t at, items; /* first item in the stream */
    bool is_restart;   /* does not follow the piece before it in the source's memory */
};

struct lane {
    struct physical_tile tile;
    VEC(struct send_piece) sends;      /* by start, disjoint */
    VEC(struct control) controls;      /* by event, at most 2 an event */
    VEC(struct receive_span) receives; /* by start */
    VEC(struct base_write) switches;
    int32_t loan_end;    /* later sends start here at the earliest */
    int32_t send_end;    /* end of the last send */
    int32_t mux_end;     /* source windows end */
    int32_t payload_end; /* A + n of the last message */
    int32_t plain_end;   /* A + n of the last ordinary message */
    int32_t horizon;
    int32_t idle_event; /* where the last idle selection stands, -1 none */
    uint8_t idle_kind;
    uint32_t mux;       /* selected until then */
    int32_t format_end; /* event of the last format-off control, -1 none */
    uint8_t format;     /* its format before */
    uint32_t next_addr; /* where the pointer stands after the last ordinary message, 0 unknown */
    uint32_t incoming_base;
    uint32_t receive_count;           /* messages of the whole phase */
    uint32_t send_left, receive_left; /* pressure: items not yet placed */
    uint32_t changed_at;              /* insertions of the whole phase up to the last one here */
};

struct problem {
    const struct exchange_transfer *transfers;
    uint32_t transfer_count;
    uint32_t count;            /* streams */
    struct piece *pieces;      /* by stream; all transfers once */
    enum exchange_form *forms; /* by transfer */
    bool is_widened;
    const struct exchange_options *options;
    struct arena *a;
    struct lane *lanes; /* ascending logical */
    uint32_t lane_count;
    uint16_t *lane_of; /* by logical tile, UINT16_MAX = idle */
    struct shape *shapes;
    struct leg *legs;
    const struct exchange_dependency *deps; /* between streams, ascending `after` */
    uint32_t dep_count;
    uint32_t *dep_first;            /* count + 1 */
    struct exchange_placed *placed; /* by stream */
    struct exchange_switch *switches;
    int32_t latency_bound;
    bool try_rows; /* encode at every insertion */
};

/* streams.c: which transfers go together. `order`, or NULL for list order, says in which order they
 * may join; streams are numbered by it. `chained` tells by transfer which have dependencies: they
 * stay alone. */
void problem_streams(struct problem *p, const uint32_t *order, const bool *chained);

/* routes.c */
uint32_t element_mask(uint32_t addr, uint32_t bytes); /* units of 4.3: bit per 16 or 32 KiB */
void problem_shapes(struct problem *p);
int32_t leg_tail(const struct problem *p, const struct shape *s);

/* encode.c: words of one row, rule 3.5. Returns false when a pair of controls cannot be aligned.
 * ret may be NULL: a trial. */
bool exchange_row_encode(
    const struct lane *l, bool plain, struct arena *a, struct exchange_row *ret);

/* lanes.c */
int32_t lane_search(const struct problem *p, uint32_t t, int32_t offset);
int32_t lane_search_elements(const struct problem *p, uint32_t t, int32_t offset);
void lane_insert(struct problem *p, uint32_t t, int32_t offset);
void lane_switch(struct problem *p, struct exchange_switch *s);
void lanes_reset(struct problem *p);

/* schedule.c */
int32_t dependency_start(const struct problem *p, uint32_t t); /* predecessors are placed */
int32_t lane_settle(const struct problem *p, uint32_t t, int32_t from); /* least legal offset */
int32_t lanes_horizon(const struct problem *p);

/* waves.c: an order in which nobody sends or receives twice before others had their turn. False:
 * none is made, because of dependencies or size. */
bool order_waves(struct problem *p, uint32_t *order);

/* order.c: a good order of placement; leaves the lanes in any state. */
void order_choose(struct problem *p, uint32_t *order);

/* decode.c */
enum step_op {
    STEP_DELAY,
    STEP_WRITE,
    STEP_SEND,
    STEP_SENDOFF,
    STEP_SENDPIC,
    STEP_SENDPICP,
    STEP_BASE,
    STEP_RETURN
};

struct row_write {
    int32_t event;
    uint32_t value;
    uint8_t kind; /* enum control_kind */
};

struct row_step { /* one instruction of 3.1 */
    enum step_op op;
    uint32_t words;
    int32_t events;
    struct row_write writes[2]; /* event relative to the instruction's start */
    uint32_t write_count;
    uint32_t item_addr;
    uint32_t delta;
    uint8_t sctl;
    uint8_t reg;
};

struct row_send { /* items of one or more instructions whose addresses run on */
    int32_t start, end;
    uint32_t item_addr;
    uint8_t sctl;
};

struct row_decoded {
    VEC(struct row_send) sends;
    VEC(struct row_write) writes;
    VEC(struct base_write) switches;
    int32_t horizon;
};

/* Returns false when the words are no instruction of 3.1. */
bool exchange_step_decode(const uint32_t *words, uint32_t left, struct row_step *ret);
int exchange_row_decode(
    const struct exchange_row *row, struct arena *a, struct row_decoded *ret, struct err *err);

#endif
