/* Letters from the other threads to the loop: a list, a mutex, an eventfd in the loop. A letter is
 * the first member of what it carries; deliver() runs on the loop thread and owns it from then.
 * Letters of one thread are delivered in the order they were posted. */
#ifndef DAEMON_MAILBOX_H
#define DAEMON_MAILBOX_H

#include <systemd/sd-event.h>

#include "base/err.h"

struct letter {
    struct letter *next;
    void (*deliver)(struct letter *letter);
};

struct mailbox; /* owned; free with mailbox_free() when no thread posts any more */

int mailbox_new(sd_event *event, struct mailbox **ret, struct err *err);
void mailbox_free(struct mailbox *m); /* delivers what is left; NULL accepted */
void mailbox_post(struct mailbox *m, struct letter *letter); /* any thread */
void mailbox_deliver(struct mailbox *m);                     /* loop thread: what is there now */

#endif
