def answers(net, x):
    return net(x.cuda()).argmax(1)


def nearest(net, batches):
    return sum(answers(net, x).eq(y.cuda()).sum().item() for x, y in batches)
