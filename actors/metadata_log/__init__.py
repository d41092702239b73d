"""The replicated log of the cluster's metadata: promises, writing, feeding brokers, their copies.

`promises.MetadataPromises` finds the log of a new controller epoch, `writer` appends to it, `copy` is a broker's part.
"""
