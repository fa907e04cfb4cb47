/* See mailbox.h. One wake-up delivers all letters that were there; each ends by its deliver(). */
#include "daemon/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mailbox {
    pthread_mutex_t mutex;
    struct letter *head;
    struct letter **tail;
    int fd;
    sd_event_source *source;
};

static struct letter *mailbox_take(struct mailbox *m) {
    pthread_mutex_lock(&m->mutex);
    struct letter *all = m->head;
    m->head = NULL;
    m->tail = &m->head;
    pthread_mutex_unlock(&m->mutex);
    return all;
}

void mailbox_deliver(struct mailbox *m) {
    for (struct letter *l = mailbox_take(m); l != NULL;) {
        struct letter *next = l->next;
        l->deliver(l);
        l = next;
    }
}

static int on_letters(sd_event_source *source, int fd, uint32_t events, void *arg) {
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n; /* the list says what there is */
    mailbox_deliver(arg);
    return 0;
}

int mailbox_new(sd_event *event, struct mailbox **ret, struct err *err) {
    struct mailbox *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return err_set(err, ERR_NOMEM, NULL);
    }
    pthread_mutex_init(&m->mutex, NULL);
    m->tail = &m->head;
    m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = m->fd < 0 ? -errno : sd_event_add_io(event, &m->source, m->fd, EPOLLIN, on_letters, m);
    if (r < 0) {
        mailbox_free(m);
        return err_sys(err, ERR_IO, -r, "eventfd");
    }
    *ret = m;
    return 0;
}

void mailbox_free(struct mailbox *m) {
    if (m == NULL) {
        return;
    }
    mailbox_deliver(m);
    sd_event_source_disable_unref(m->source);
    if (m->fd >= 0) {
        close(m->fd);
    }
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

void mailbox_post(struct mailbox *m, struct letter *letter) {
    letter->next = NULL;
    pthread_mutex_lock(&m->mutex);
    *m->tail = letter;
    m->tail = &letter->next;
    pthread_mutex_unlock(&m->mutex);
    uint64_t one = 1;
    ssize_t n = write(m->fd, &one, sizeof one);
    (void)n; /* a full counter is a wake-up too */
}
